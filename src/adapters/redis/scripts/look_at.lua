-- look_at: place, field. Answers what `look` does, for this slot alone: the field, the slot, the details, and 1 if it
-- holds the lease. A part that does not exist is empty.
return each(2, function(a)
  local field, packed, details, lease = ARGV[a + 1], nil, nil, nil
  local value, list = redis_call('GET', base .. ARGV[a]), {}
  if value then
    lease, list = parts(ARGV[a], value)
  end
  if is_dated(field) then
    local found = redis_call('HMGET', dated_key(ARGV[a]), field, field .. '+')
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
