-- own: arguments `read`, `take` or `leave`, and for `take` the topology's name and the cluster name (if that is empty,
-- the former one stays). Answers the two names as they were. ARGV[3] is empty in this call: otherwise a register that
-- another broker owns would refuse it.
return answer_all(function()
  local act, were = ARGV[5], { used_by.topology, used_by.broker }
  if act == 'take' then
    used_by = { topology = ARGV[6], broker = ARGV[7] ~= '' and ARGV[7] or used_by.broker }
    give()
  elseif act == 'leave' and (used_by.topology ~= '' or used_by.broker ~= '') then
    used_by = { topology = '', broker = '' }
    give()
  end
  reply(were)
end)
