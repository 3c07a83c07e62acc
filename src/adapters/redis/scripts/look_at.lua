-- look_at: keys home, lease of the same name; argument field. Answers what `look` does, for this slot alone: the field,
-- the slot, the details, and 1 if it holds the lease. A part that does not exist is empty.
return each(2, 1, function(k, a)
  local field, lease = ARGV[a], holder(KEYS[k + 1])
  local found = redis.call('HMGET', KEYS[k], field, field .. '+')
  local slot, details = found[1], found[2]
  local lives = slot and struct.unpack('<I6', slot) > now
  if not lives and not (details and outlasts(field, details)) then
    return {}
  end
  return { { field, lives and slot or '', details or '', lease and lease.field == field and 1 or 0 } }
end)
