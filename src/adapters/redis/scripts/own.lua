-- own: arguments `read`, `take` or `leave`, for `take` the topology's name and the cluster name (if that is empty, the former one stays),
-- and for `leave` the types. Answers the two names as they were. ARGV[3] is empty in this call: otherwise a register that
-- another broker owns would refuse it.
return answer_all(function()
  local act, were = ARGV[5], { used_by.topology, used_by.broker }
  if act == 'take' then
    used_by = { topology = ARGV[6], broker = ARGV[7] ~= '' and ARGV[7] or used_by.broker }
    give()
  elseif act == 'leave' then
    for i = 6, #ARGV do
      redis_call('DEL', base .. ARGV[i] .. ':x')
    end
    redis_call('DEL', base .. 'schedules', base .. 'breakers')
    used_by = { topology = '', broker = '' }
    if given > 0 then
      -- The versions rise for as long as slots are kept that nobody has asked for since.
      redis_call('SET', KEYS[1], text(given), 'PX', text(backlog))
    end
  end
  reply(were)
end)
