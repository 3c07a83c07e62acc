-- cancel: due time as far as the caller knows it (0: not known), how far ahead an unknown slot may be due, until when the
-- caller waits (us), place, field (empty: every slot of the reference). Answers for each slot the field, 1 if an event
-- waited, 1 if a run had begun, and 1 if the slot had been cancelled before.
local CANCEL = '<I6I6I7I2c0I2c0'

local function cancel(place, field, slot, version, due, horizon)
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
  forget(place, field, slot)
  return { field, waiting and 1 or 0, running and 1 or 0, already and 1 or 0 }
end

-- Cancels every slot of a reference, all with the same version.
local function cancel_all(place, due, horizon)
  local cancelled, version, ends = {}, nil, 0
  for _, field in ipairs({ 'i', 'f', 'd' }) do
    local slot = load(place, field)
    if slot.ends > 0 then
      version = version or give()
      cancelled[#cancelled + 1] = cancel(place, field, slot, version, due, horizon)
      save_value(place, field, slot)
    end
  end
  local fields, all = {}, redis_call('HGETALL', dated_key(place))
  for i = 1, #all, 2 do
    fields[all[i]] = all[i + 1]
  end
  for field, packed in pairs(fields) do
    if sub(field, -1) ~= '+' then
      local slot = unpacked(packed)
      if slot.ends > 0 then
        version = version or give()
        slot.details = fields[field .. '+']
        cancelled[#cancelled + 1] = cancel(place, field, slot, version, due, horizon)
        write_dated(place, field, slot)
        ends = max(ends, slot.ends)
      else
        remove_dated(place, field)
      end
    end
  end
  if ends > 0 then
    redis_call('PEXPIREAT', dated_key(place), text(ends))
  end
  return cancelled
end

-- The caller has given up waiting, and the cancel must not reach what was published since. The caller waits for the
-- batch as a whole, so the first item's deadline counts.
if ARGV[5] then
  local _, _, until_us = unpack_numbers(CANCEL, ARGV[5])
  if now_us > until_us then
    return redis.error_reply('LATE it came when nobody waited for it any more')
  end
end
return each(function(item)
  local due, horizon, _, place, field = unpack_numbers(CANCEL, item)
  if field == '' then
    return reply(cancel_all(place, due, horizon))
  end
  local slot = load(place, field)
  local answer = cancel(place, field, slot, give(), due, horizon)
  save(place, field, slot)
  return reply({ answer })
end)
