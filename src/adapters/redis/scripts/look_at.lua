-- look_at: place, field. Answers what `look` does, for this slot alone: the field, the slot, the details, and 1 if it
-- holds the lease. A part that does not exist is empty.
return each(2, function(a)
  local field, packed, details, lease = ARGV[a + 1], nil, nil, nil
  if field == 'e' then
    packed = redis_call('GET', base .. ARGV[a])
    if packed then
      local _, leased, noted = parted(packed)
      lease, details = leased, noted
    end
  else
    local found = redis_call('HMGET', base .. ARGV[a], field, field .. '+', '!')
    packed, details, lease = found[1], found[2], found[3]
  end
  local lives = packed and unpack_numbers('<I6', packed) > now
  if not lives and not (details and outlasts(field, details)) then
    return reply({})
  end
  local held = holder(lease)
  return reply({ { field, lives and packed or '', details or '', held and held.field == field and 1 or 0 } })
end)
