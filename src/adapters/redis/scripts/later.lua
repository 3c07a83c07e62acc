-- later: header (version, generation, date; then the field), place and own place. Answers 0
-- if the copy is not wanted any more, 1 if it has been started, 2 if it waits until the date.
return each(3, function(a)
  local version, generation, date, rest = unpack_numbers('<I7I4I6', ARGV[a])
  local place, field
  place, field, version = counted(ARGV[a + 1], ARGV[a + 2], sub(ARGV[a], rest), version)
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
