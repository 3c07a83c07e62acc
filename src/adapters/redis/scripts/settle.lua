-- settle: keys home, own home, lease, index; arguments field, version, generation, fence, token, due, dedup-retention,
-- due time of a copy with the next generation (empty: finished), and the copy's details for its home and for its own
-- home. Answers 1.
return each(4, 10, function(k, a)
  local home, field, version = counted(KEYS[k], KEYS[k + 1], ARGV[a], tonumber(ARGV[a + 1]))
  local index = KEYS[k + 3]
  local generation, copied = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 7])
  local slot = load(home, field)
  local next = min(generation + 1, LAST_GENERATION)
  -- In slot `f` a run must not hide what a newer run serves, which has covered the slot since.
  local counts = tonumber(ARGV[a + 3]) >= slot.covered
  if copied then
    slot.due = max(slot.due, copied)
  end
  if counts and copied then
    raise(slot, version, false, next)
    -- The copy of the last generation has that generation too. The mark does not rise then, and the copy counts as not
    -- started all the same.
    if generation == next and is_at(slot, version, next) then
      slot.begun, slot.crashes = false, 0
    end
  elseif counts then
    raise(slot, version, true, generation)
  end
  keep(slot, tonumber(ARGV[a + 6]), tonumber(ARGV[a + 5]))
  -- The index may have a newer event by now, whose details must stay.
  if counts and not slot.cancelled and max(slot.newest, slot.version) <= version then
    if not copied then
      forget(index, home, field, slot)
    elseif is_at(slot, version, next) then
      note_copy(index, home, field, slot, ARGV[a + (home == KEYS[k] and 8 or 9)])
    end
  end
  save(home, field, slot)
  give_back(KEYS[k + 2], ARGV[a + 4])
  return 1
end)
