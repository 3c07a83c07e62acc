-- later: keys home, own home, index; arguments field, version, generation, date. Answers 0 if the copy is not wanted
-- any more, 1 if it has been started, 2 if it waits until the date.
return each(3, 4, function(k, a)
  local home, field, version = counted(KEYS[k], KEYS[k + 1], ARGV[a], tonumber(ARGV[a + 1]))
  local generation, date = tonumber(ARGV[a + 2]), min(tonumber(ARGV[a + 3]), END_OF_TIME)
  local slot = load(home, field)
  if stale(slot, version, generation) or replaced(slot, field, version) then
    return 0
  end
  if slot.begun and is_at(slot, version, generation) then
    return 1
  end
  -- At least 1, because 0 means "never".
  slot.later, slot.later_version, slot.later_generation = max(date, 1), version, generation
  slot.due = max(slot.due, slot.later)
  stay_open(slot)
  if slot.details then
    note_copy(KEYS[k + 2], home, field, slot, struct.pack('<I6', date) .. string.sub(without_kept(slot.details), 7))
  end
  save(home, field, slot)
  return 2
end)
