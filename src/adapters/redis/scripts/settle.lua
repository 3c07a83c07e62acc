-- settle: keys home, own home, lease; arguments field, version, generation, token, due, dedup-retention, and when a
-- copy of the next generation is due (empty: finished). Answers 1.
return each(3, 7, function(k, a)
  local home, field, version = counted(KEYS[k], KEYS[k + 1], ARGV[a], tonumber(ARGV[a + 1]))
  local generation, copied = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 6])
  local slot = load(home, field)
  if copied then
    raise(slot, version, false, min(generation + 1, LAST_GENERATION))
    slot.due = max(slot.due, copied)
  else
    raise(slot, version, true, generation)
  end
  keep(slot, tonumber(ARGV[a + 5]), tonumber(ARGV[a + 4]))
  save(home, field, slot)
  give_back(KEYS[k + 2], ARGV[a + 3])
  return 1
end)
