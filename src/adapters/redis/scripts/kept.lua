-- kept: place, field. Answers the message, or false if none is kept.
return each(function(item)
  local place, field = unpack_numbers('<I2c0I2c0', item)
  local slot = load(place, field)
  reply(is_kept(slot.details) and ask('HGET', kept_key(place), field) or false)
end)
