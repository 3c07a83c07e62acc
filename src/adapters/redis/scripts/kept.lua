-- kept: keys home, kept messages of the home; argument field. Answers the message, or false if none is kept.
return each(2, 1, function(k, a)
  local slot = load(KEYS[k], ARGV[a])
  return is_kept(slot.details) and ask('HGET', KEYS[k + 1], ARGV[a])
end)
