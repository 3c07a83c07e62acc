-- now: arguments: none that counts. Answers Redis's time in us.
return each(1, function() reply(now_us) end)
