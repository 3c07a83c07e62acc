-- Named states: one hash for each kind, which has a text for each name. Arguments: `all`, the kind; `read`, the kind, the name;
-- `replace`, the kind, and for each state its name, the former text and the new one, either of them empty if there is none; `turn`,
-- the ms for which nobody else gets a turn. Answers texts: all names and states; the state; for each state `1` and nothing if it was
-- replaced, else `0` and the text that it has; `1` if the turn was free.
return answer_all(function()
  local act, kind = ARGV[5], ARGV[6]
  local key = base .. kind
  if act == 'all' then
    reply(redis_call('HGETALL', key))
  elseif act == 'turn' then
    local free = redis_call('SET', base .. 'turn', '1', 'NX', 'PX', kind)
    reply(free and { '1' } or {})
  elseif act == 'read' then
    local state = redis_call('HGET', key, ARGV[7])
    reply(state and { state } or {})
  else
    local answers = {}
    for at = 7, #ARGV, 3 do
      local name, before, after = ARGV[at], ARGV[at + 1], ARGV[at + 2]
      local state = redis_call('HGET', key, name) or ''
      local is_before = state == before
      if is_before and after == '' then
        redis_call('HDEL', key, name)
      elseif is_before and after ~= before then
        redis_call('HSET', key, name, after)
      end
      answers[#answers + 1] = is_before and '1' or '0'
      answers[#answers + 1] = is_before and '' or state
    end
    reply(answers)
  end
end)
