-- look: place of a reference. Answers for each of its slots the field, the slot, the details, and 1 if it holds the
-- lease. A part that does not exist is empty.
return each(1, function(a)
  local shown, fields, all = {}, {}, redis_call('HGETALL', base .. ARGV[a])
  for i = 1, #all, 2 do
    fields[all[i]] = all[i + 1]
  end
  local lease = holder(fields['!'])
  for field, packed in pairs(fields) do
    if field ~= '!' and sub(field, -1) ~= '+' and unpack_numbers('<I6', packed) > now then
      shown[#shown + 1] = { field, packed, fields[field .. '+'] or '', lease and lease.field == field and 1 or 0 }
    end
  end
  reply(shown)
end)
