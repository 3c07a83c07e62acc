-- settle: keys home, own home, lease; arguments field, version, generation, fence, token, due, dedup-retention, and when
-- a copy of the next generation is due (empty: finished). Answers 1.
return each(3, 8, function(k, a)
  local home, field, version = counted(KEYS[k], KEYS[k + 1], ARGV[a], tonumber(ARGV[a + 1]))
  local generation, copied = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 7])
  local slot = load(home, field)
  -- A run that began before something it covers must not hide the run that serves it.
  local counts = tonumber(ARGV[a + 3]) >= slot.covered
  if copied then
    slot.due = max(slot.due, copied)
  end
  if counts and copied then
    raise(slot, version, false, min(generation + 1, LAST_GENERATION))
  elseif counts then
    raise(slot, version, true, generation)
  end
  keep(slot, tonumber(ARGV[a + 6]), tonumber(ARGV[a + 5]))
  save(home, field, slot)
  give_back(KEYS[k + 2], ARGV[a + 4])
  return 1
end)
