-- reserve: keys home, asker's home, asker's own home; arguments field, due, and the asker's field, version and
-- generation. The asker is the event whose handler publishes; its field is empty if there is none. Answers the version,
-- or 0 if the asker is stale.
return each(3, 5, function(k, a)
  local home, field, due, asker = KEYS[k], ARGV[a], tonumber(ARGV[a + 1]), ARGV[a + 2]
  if asker ~= '' then
    local asker_home, asker_field, version = counted(KEYS[k + 1], KEYS[k + 2], asker, tonumber(ARGV[a + 3]))
    if stale(load(asker_home, asker_field), version, tonumber(ARGV[a + 4])) then
      return 0
    end
  end
  local version = give()
  local slot = load(home, field)
  slot.due = max(slot.due, due)
  stay_open(slot)
  save(home, field, slot)
  return version
end)
