-- look_at: place, field. Answers what `look` does, for this slot alone: the field, the slot, the details, and 1 if it
-- holds the lease. A part that does not exist is empty.
return each(function(item)
  local place, field = unpack_numbers('<I2c0I2c0', item)
  local packed, details, lease
  local value, list = redis_call('GET', base .. place), {}
  if value then
    lease, list = parts(place, value)
  end
  if is_dated(field) then
    local found = redis_call('HMGET', dated_key(place), field, field .. '+')
    packed, details = found[1], found[2]
  end
  for i = 1, #list, 3 do
    if list[i] == field then
      packed, details = list[i + 1], list[i + 2]
    end
  end
  local lives = packed and unpack_numbers('<I6', packed) > now
  if not lives and not (details and outlasts(field, details)) then
    return reply({})
  end
  local held = holder(lease)
  return reply({ { field, lives and packed or '', details or '', held and held.field == field and 1 or 0 } })
end)
