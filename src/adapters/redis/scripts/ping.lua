-- ping: key that is never there, no arguments. It writes, for a server that answers and takes no writes (a replica, or one that
-- is out of memory) is as good as away. The counter only ever grows. Answers 1 where there was one.
give()
each(1, 0, function() return 0 end)
return given > 0 and 1 or 0
