-- cancelled_run: field, place and the lease's place (empty if it is the place). Answers 1 if a run that a cancel of the slot
-- has reached still holds its lease, else 0.
return each(function(item)
  local field, place, lease_place = unpack_numbers('<I2c0I2c0I2c0', item)
  local slot = load(place, field)
  local lease = holder(lease_at(slot, place, field, lease_place == '' and place or lease_place))
  return reply(slot.cancelled and lease and lease.field == field and lease.fence < slot.version and 1 or 0)
end)
