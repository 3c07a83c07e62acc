-- reserve: due, the asker's version and generation, field, place, the asker's field, place and own place. The asker is the event whose handler publishes; its field is empty if there is none. Answers the version, or 0
-- if the asker is stale.
local RESERVE = '<I6I7I4I2c0I2c0I2c0I2c0I2c0'

return each(function(item)
  local due, version, generation, field, place, asker_field, asker_place, asker_own = unpack_numbers(RESERVE, item)
  if asker_field ~= '' then
    asker_place, asker_field, version = counted(asker_place, asker_own, asker_field, version)
    if stale(load(asker_place, asker_field), version, generation) then
      reply(0)
      return
    end
  end
  reply(give())
  -- A due time that has passed keeps no slot longer, so the slot of an event that is due at once is not even read.
  if due > now then
    local slot = load(place, field)
    slot.due = max(slot.due, due)
    stay_open(slot)
    save(place, field, slot)
  end
end)
