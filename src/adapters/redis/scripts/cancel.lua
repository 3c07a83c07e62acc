-- cancel: keys home, index; arguments field (empty: every slot), due time as far as the caller knows it (0: not known),
-- how far ahead an unknown slot may be due, until when the caller waits (us). Answers for each slot the field, 1 if an
-- event waited, 1 if a run had begun, and 1 if the slot had been cancelled before.
local function cancel(home, index, field, slot, version, due, horizon)
  local seen, already = slot.ends > 0, slot.cancelled
  local running = slot.begun and not slot.finished
  local waiting = seen and open(slot) and (not running or slot.newest > slot.version)
  -- An event that was published without a version may be known to the index alone.
  waiting = waiting or (slot.details and not running)
  raise(slot, version, true, 0)
  slot.cancelled, slot.since, slot.later = true, 0, 0
  slot.due = max(slot.due, due)
  if not seen then
    -- There may be copies that the register does not know. They are due within the ladder's horizon.
    slot.due = max(slot.due, min(now + horizon, END_OF_TIME))
  end
  stay_open(slot)
  forget(index, home, field, slot)
  return { field, waiting and 1 or 0, running and 1 or 0, already and 1 or 0 }
end

-- Cancels every slot of a home, all with the same version.
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

-- The caller has given up waiting, and the cancel must not reach what was published since. The caller waits for the
-- batch as a whole, so the first item's deadline counts.
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
