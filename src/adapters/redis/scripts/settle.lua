-- settle: keys home, own home, lease, index; arguments field, version, generation, fence, token, due, dedup-retention, when
-- a copy of the next generation is due (empty: finished), and what the index says of that copy in its home and in its own
-- home. Answers 1.
return each(4, 10, function(k, a)
  local home, field, version = counted(KEYS[k], KEYS[k + 1], ARGV[a], tonumber(ARGV[a + 1]))
  local index = KEYS[k + 3]
  local generation, copied = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 7])
  local slot = load(home, field)
  local next = min(generation + 1, LAST_GENERATION)
  -- A run that began before something it covers must not hide the run that serves it.
  local counts = tonumber(ARGV[a + 3]) >= slot.covered
  if copied then
    slot.due = max(slot.due, copied)
  end
  if counts and copied then
    raise(slot, version, false, next)
    -- The last generation is the copy's too: no rise, and yet it has not been started.
    if generation == next and is_at(slot, version, next) then
      slot.begun, slot.crashes = false, 0
    end
  elseif counts then
    raise(slot, version, true, generation)
  end
  keep(slot, tonumber(ARGV[a + 6]), tonumber(ARGV[a + 5]))
  -- The index may speak of a newer event by now.
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
