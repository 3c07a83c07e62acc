-- release: keys home, own home, lease; arguments field, version, generation, token, due, dedup-retention. Answers 1.
return each(3, 6, function(k, a)
  if not give_back(KEYS[k + 2], ARGV[a + 3]) then
    return 1
  end
  local home, field, version = counted(KEYS[k], KEYS[k + 1], ARGV[a], tonumber(ARGV[a + 1]))
  local slot = load(home, field)
  if slot.begun and is_at(slot, version, tonumber(ARGV[a + 2])) then
    slot.begun = false
    keep(slot, tonumber(ARGV[a + 5]), tonumber(ARGV[a + 4]))
    save(home, field, slot)
  end
  return 1
end)
