-- release: version, generation, due, dedup-retention, token, field, place, own place and the lease's place (both empty
-- if they are the place). Answers 1.
return each(function(item)
  local version, generation, due, dedup, token, field, place, own_place, lease_place =
    unpack_numbers('<I7I4I6I6c16I2c0I2c0I2c0I2c0', item)
  lease_place = lease_place == '' and place or lease_place
  reply(1)
  place, field, version = counted(place, own_place, field, version)
  local slot = load(place, field)
  if not give_back(slot, place, field, lease_place, token) then
    return
  end
  if slot.begun and is_at(slot, version, generation) then
    slot.begun = false
    keep(slot, dedup, due)
    save(place, field, slot)
  elseif has_lease(place, field, lease_place) then
    save_value(place, field, slot)
  end
end)
