-- ping: one item without arguments. Answers 0. It writes the counter, which may always grow, because a server that
-- answers and takes no writes (a replica, or one that is out of memory) must count as down.
give()
return each(1, function() reply(0) end)
