-- renew: header (version, due, lease in ms, dedup-retention, 2 if the lease is a reference's; token; then the field),
-- place, own place and the lease's place (both empty if they are the place). Answers 1 if the lease is extended, 0 if it
-- is lost.
return each(4, function(a)
  local header, place = ARGV[a], ARGV[a + 1]
  local version, due, duration, dedup, flags, rest = unpack_numbers('<I7I6I6I6B', header)
  local token, field = sub(header, rest, rest + 15), sub(header, rest + 16)
  local lease_place, by_reference = ARGV[a + 3] == '' and place or ARGV[a + 3], flags >= 2
  place, field = counted(place, ARGV[a + 2], field, version)
  local slot = load(place, field)
  local same = lease_place == place
  local packed = slot.lease
  if not same then
    packed = other_lease(lease_place, by_reference)
  end
  local lease = holder(packed)
  if not lease or lease.token ~= token then
    return reply(0)
  end
  packed = lease_of(lease, duration)
  if same then
    slot.lease, slot.held = packed, true
  else
    hold_other(lease_place, by_reference, packed)
  end
  -- If Redis has lost the slot, there is nothing to keep: settle writes it again.
  if slot.ends > 0 then
    keep(slot, dedup, due)
    save(place, field, slot)
  elseif same then
    if field == 'e' then
      save_event(place, slot)
    else
      hold_other(place, true, packed)
    end
  end
  return reply(1)
end)
