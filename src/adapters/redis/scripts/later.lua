-- later: version, generation, date, field, place and own place. Answers 0 if the copy is not wanted any more, 1 if it has
-- been started, 2 if it waits until the date.
return each(function(item)
  local version, generation, date, field, place, own_place = unpack_numbers('<I7I4I6I2c0I2c0I2c0', item)
  place, field, version = counted(place, own_place, field, version)
  local slot = load(place, field)
  if stale(slot, version, generation) or replaced(slot, field, version) then
    return reply(0)
  end
  if slot.begun and is_at(slot, version, generation) then
    return reply(1)
  end
  -- At least 1, because 0 means "never".
  slot.later, slot.later_version, slot.later_generation = max(date, 1), version, generation
  slot.due = max(slot.due, slot.later)
  stay_open(slot)
  if slot.details then
    note_copy(place, field, slot, pack('<I6', date) .. sub(without_kept(slot.details), 7))
  end
  save(place, field, slot)
  return reply(2)
end)
