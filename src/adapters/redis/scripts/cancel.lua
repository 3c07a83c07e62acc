-- cancel: keys home, index; arguments field (empty: every slot), when it is due as far as the caller knows (0: not known), and
-- how far ahead a slot may be due that is not known, and until when it is waited for (us). Answers field, 1 where something
-- waited, 1 where something had begun, 1 where it had been cancelled already, for each slot.
local function cancel(home, index, field, slot, version, due, horizon)
  local seen, already = slot.ends > 0, slot.cancelled
  local running = slot.begun and not slot.finished
  local waiting = seen and open(slot) and (not running or slot.newest > slot.version)
  -- What was published without a version is known to the index alone.
  waiting = waiting or (slot.details and not running)
  raise(slot, version, true, 0)
  slot.cancelled, slot.since, slot.later = true, 0, 0
  slot.due = max(slot.due, due)
  if not seen then
    -- There may be copies that nobody knows of; the ladder reaches so far.
    slot.due = max(slot.due, min(now + horizon, END_OF_TIME))
  end
  stay_open(slot)
  forget(index, home, field, slot)
  return { field, waiting and 1 or 0, running and 1 or 0, already and 1 or 0 }
end

-- All that is remembered of a reference, with one version.
local function cancel_all(home, index, due, horizon)
  local fields, all = {}, redis.call('HGETALL', home)
  for i = 1, #all, 2 do
    fields[all[i]] = all[i + 1]
  end
  local answers, version, ends = {}, nil, 0
  for field, packed in pairs(fields) do
    if string.sub(field, -1) ~= '+' then
      local slot = unpacked(packed)
      if slot.ends > 0 then
        version = version or give()
        slot.details = fields[field .. '+']
        answers[#answers + 1] = cancel(home, index, field, slot, version, due, horizon)
        write(home, field, slot)
        ends = max(ends, slot.ends)
      else
        remove(home, field)
      end
    end
  end
  if version then
    redis.call('PEXPIREAT', home, text(ends))
  end
  return answers
end

-- Its caller has given it up: it must not reach what was published since. A batch is waited for as one.
if #KEYS > 1 and now_us > tonumber(ARGV[7]) then
  return redis.error_reply('LATE it came when nobody waited for it any more')
end
return each(2, 4, function(k, a)
  local home, index, field = KEYS[k], KEYS[k + 1], ARGV[a]
  local due, horizon = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  if field == '' then
    return cancel_all(home, index, due, horizon)
  end
  local slot = load(home, field)
  local answer = cancel(home, index, field, slot, give(), due, horizon)
  save(home, field, slot)
  return { answer }
end)
