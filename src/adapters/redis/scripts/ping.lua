-- ping: a key that never exists, no arguments. Answers 0. It writes the counter, which may always grow, because a
-- server that answers and takes no writes (a replica, or one that is out of memory) must count as down.
give()
return each(1, 0, function() return 0 end)
