-- renew: version, due, lease in ms, dedup-retention, token, field, place, own place and the lease's place (both empty if
-- they are the place). Answers 2 if the lease is extended and a cancel has reached the run, 1 if it is extended, 0 if it is
-- lost. A stale version is no cancel: a run-now or a reschedule raises the mark while an older copy runs.
return each(function(item)
  local version, due, duration, dedup, token, field, place, own_place, lease_place =
    unpack_numbers('<I7I6I6I6c16I2c0I2c0I2c0I2c0', item)
  lease_place = lease_place == '' and place or lease_place
  place, field, version = counted(place, own_place, field, version)
  local slot = load(place, field)
  local lease = holder(lease_at(slot, place, field, lease_place))
  if not lease or lease.token ~= token then
    return reply(0)
  end
  local packed, same = lease_of(lease, duration), has_lease(place, field, lease_place)
  if same then
    slot.lease = packed
  else
    change_other_lease(lease_place, packed)
  end
  -- If Redis has lost the slot, there is nothing to keep: settle writes it again.
  if slot.ends > 0 then
    keep(slot, dedup, due)
    save(place, field, slot)
  elseif same then
    save_value(place, field, slot)
  end
  return reply(slot.cancelled and version < slot.version and 2 or 1)
end)
