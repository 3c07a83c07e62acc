-- now: an item is empty. Answers Redis's time in us.
return each(function() reply(now_us) end)
