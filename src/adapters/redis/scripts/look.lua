-- look: keys home, lease of the same name. Answers for each slot of the home the field, the slot, the details, and 1 if
-- it holds the lease. A part that does not exist is empty.
return each(2, 0, function(k)
  local lease = holder(KEYS[k + 1])
  local function holds(field)
    return lease and lease.field == field and 1 or 0
  end
  local shown, fields, all = {}, {}, redis.call('HGETALL', KEYS[k])
  for i = 1, #all, 2 do
    fields[all[i]] = all[i + 1]
  end
  for field, packed in pairs(fields) do
    if string.sub(field, -1) ~= '+' and struct.unpack('<I6', packed) > now then
      shown[#shown + 1] = { field, packed, fields[field .. '+'] or '', holds(field) }
    end
  end
  local slot, details = fields['e'], fields['e+']
  if details and outlasts('e', details) and not (slot and struct.unpack('<I6', slot) > now) then
    shown[#shown + 1] = { 'e', '', details, holds('e') }
  end
  return shown
end)
