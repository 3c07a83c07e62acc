-- reserve: due, the asker's version and generation, field, place, the asker's field, place and own place. The asker is the event whose handler publishes; its field is empty if there is none. Answers the version, or 0
-- if the asker is stale.
local RESERVE = '<I6I7I4I2c0I2c0I2c0I2c0I2c0'

-- Reserves in a place that is empty or plain. Returns whether it is.
local function reserve_plain(key, head, due)
  local value = redis_call('GET', key)
  if not value then
    local ends = min(max(due, now) + backlog, END_OF_TIME)
    redis_call('SET', key, pack(PLAIN, head, ends, due, 0, 0, 0, 0, 0, 0, 0), 'PXAT', expiry(ends))
    return true
  end
  local ends, former = plain(value, head)
  if not ends then
    return false
  end
  due = max(former, due)
  ends = min(max(due, now) + backlog, END_OF_TIME)
  value = sub(value, 1, PLAIN_HEAD) .. pack('<I6I6', ends, due) .. sub(value, PLAIN_HEAD + 13)
  redis_call('SET', key, value, 'PXAT', expiry(ends))
  return true
end

return each(function(item)
  local due, version, generation, field, place, asker_field, asker_place, asker_own = unpack_numbers(RESERVE, item)
  if asker_field ~= '' then
    asker_place, asker_field, version = counted(asker_place, asker_own, asker_field, version)
    if stale(load(asker_place, asker_field), version, generation) then
      reply(0)
      return
    end
  end
  local given_version, head = give(), HEADS[field]
  if head and reserve_plain(base .. place, head, due) then
    return reply(given_version)
  end
  local slot = load(place, field)
  slot.due = max(slot.due, due)
  stay_open(slot)
  save(place, field, slot)
  reply(given_version)
end)
