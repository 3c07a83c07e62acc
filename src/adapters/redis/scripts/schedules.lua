-- The states of the schedules: one hash, which has a text for each schedule. Arguments: `all`; `read`, the name; `replace`, the name,
-- the former text and the new one, either of them empty if there is none; `turn`, the ms for which nobody else gets a turn; `report`,
-- the report of a wrong clock and the ms for which it is kept; `clock`.
-- Answers texts: all names and states, or the state, or `1` if the state was replaced or the turn was free, or the report.
return answer_all(function()
  local act, name, key = ARGV[5], ARGV[6], base .. 'schedules'
  if act == 'all' then
    reply(redis_call('HGETALL', key))
  elseif act == 'turn' then
    local free = redis_call('SET', base .. 'turn', '1', 'NX', 'PX', name)
    reply(free and { '1' } or {})
  elseif act == 'report' then
    redis_call('SET', base .. 'clock', name, 'PX', ARGV[7])
    reply({})
  elseif act == 'clock' then
    local report = redis_call('GET', base .. 'clock')
    reply(report and { report } or {})
  else
    local state = redis_call('HGET', key, name) or ''
    if act == 'read' then
      reply(state ~= '' and { state } or {})
    elseif state ~= ARGV[7] then
      reply({})
    else
      if ARGV[8] ~= '' then
        redis_call('HSET', key, name, ARGV[8])
      else
        redis_call('HDEL', key, name)
      end
      reply({ '1' })
    end
  end
end)
