-- renew: keys home, own home, lease; arguments field, version, token, due, lease, dedup-retention. Answers 1 if the
-- lease is extended, 0 if it is lost.
return each(3, 6, function(k, a)
  local lease_key, token = KEYS[k + 2], ARGV[a + 2]
  local lease = holder(lease_key)
  if not lease or lease.token ~= token then
    return 0
  end
  hold(lease_key, lease, tonumber(ARGV[a + 4]))
  local home, field = counted(KEYS[k], KEYS[k + 1], ARGV[a], tonumber(ARGV[a + 1]))
  local slot = load(home, field)
  -- If Redis has lost the slot, there is nothing to keep: settle writes it again.
  if slot.ends > 0 then
    keep(slot, tonumber(ARGV[a + 5]), tonumber(ARGV[a + 3]))
    save(home, field, slot)
  end
  return 1
end)
