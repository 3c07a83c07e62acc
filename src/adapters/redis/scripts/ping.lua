-- ping: key that is never there, no arguments. It writes, for a server that answers and takes no writes (a replica, or one that
-- is out of memory) is as good as away. The counter only ever grows. Answers 0.
give()
return each(1, 0, function() return 0 end)
