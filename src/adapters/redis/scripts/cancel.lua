-- cancel: key home; arguments field (empty: every slot), and how far ahead a slot may be due that is not known. Answers
-- field, 1 where something waited, 1 where something had begun, for each slot.
local function cancel(field, slot, version, horizon)
  local seen = slot.ends > 0
  local running = slot.begun and not slot.finished
  local waiting = seen and open(slot) and (not running or slot.newest > slot.version)
  raise(slot, version, true, 0)
  slot.cancelled, slot.since, slot.later = true, 0, 0
  if not seen then
    -- Nobody knows when what is to be cancelled is due; the ladder reaches so far.
    slot.due = min(now + horizon, END_OF_TIME)
  end
  stay_open(slot)
  return { field, waiting and 1 or 0, running and 1 or 0 }
end

return each(1, 2, function(k, a)
  local home, field, horizon = KEYS[k], ARGV[a], tonumber(ARGV[a + 1])
  if field ~= '' then
    local slot = load(home, field)
    local answer = cancel(field, slot, give(), horizon)
    save(home, field, slot)
    return { answer }
  end
  local answers, version, ends = {}, nil, 0
  local all = redis.call('HGETALL', home)
  for i = 1, #all, 2 do
    local slot = unpacked(all[i + 1])
    if slot.ends > 0 then
      version = version or give()
      answers[#answers + 1] = cancel(all[i], slot, version, horizon)
      write(home, all[i], slot)
      ends = max(ends, slot.ends)
    else
      redis.call('HDEL', home, all[i])
    end
  end
  if version then
    redis.call('PEXPIREAT', home, text(ends))
  end
  return answers
end)
