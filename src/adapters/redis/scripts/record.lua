-- record: key home; arguments field, version, dedup-retention. Answers 1.
return each(1, 3, function(k, a)
  local home, field, version, dedup = KEYS[k], ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  -- Raising `newest` to what no claim would take for a version would drop all that is published below it.
  if field == 'e' or not was_given(version) then
    return 1
  end
  local slot = load(home, field)
  slot.newest = max(slot.newest, version)
  if slot.since == 0 and version > slot.version then
    slot.since = now
  end
  keep(slot, dedup, nil)
  save(home, field, slot)
  return 1
end)
