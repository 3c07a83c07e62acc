-- reserve: due, whether an event asks, field and place; then the event that asks, whose handler publishes: version,
-- generation, field, place and own place. Answers the version, or 0 if that event is stale.
local RESERVE, PLACE = '<I6B', '<I2c0I2c0'
local ASKER = PLACE .. 'I7I4I2c0I2c0I2c0'

local function is_asker_stale(item, at)
  local _, _, version, generation, field, place, own = unpack_numbers(ASKER, item, at)
  place, field, version = counted(place, own, field, version)
  return stale(load(place, field), version, generation)
end

return each(function(item)
  local due, is_asked, at = unpack_numbers(RESERVE, item)
  if is_asked == 1 and is_asker_stale(item, at) then
    return reply(0)
  end
  reply(give())
  -- A due time that has passed keeps no slot longer, so the slot of an event that is due at once is not even read.
  if due > now then
    local field, place = unpack_numbers(PLACE, item, at)
    local slot = load(place, field)
    slot.due = max(slot.due, due)
    stay_open(slot)
    save(place, field, slot)
  end
end)
