-- look: place of a reference. Answers for each of its slots the field, the slot, the details, and 1 if it holds the
-- lease. A part that does not exist is empty.
return each(function(item)
  local place = unpack_numbers('<I2c0', item)
  local shown, lease, list = {}, nil, {}
  local value = redis_call('GET', base .. place)
  if value then
    lease, list = parts(place, value)
  end
  local held = holder(lease)
  local function show(field, packed, details)
    if unpack_numbers('<I6', packed) > now then
      shown[#shown + 1] = { field, packed, details or '', held and held.field == field and 1 or 0 }
    end
  end
  for i = 1, #list, 3 do
    show(list[i], list[i + 1], list[i + 2])
  end
  local fields, all = {}, redis_call('HGETALL', dated_key(place))
  for i = 1, #all, 2 do
    fields[all[i]] = all[i + 1]
  end
  for field, packed in pairs(fields) do
    if sub(field, -1) ~= '+' then
      show(field, packed, fields[field .. '+'])
    end
  end
  reply(shown)
end)
