-- kept: place, field. Answers the message, or false if none is kept.
return each(2, function(a)
  local slot = load(ARGV[a], ARGV[a + 1])
  reply(is_kept(slot.details) and ask('HGET', kept_key(ARGV[a]), ARGV[a + 1]) or false)
end)
