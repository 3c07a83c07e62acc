-- ping: no item. Answers 0. It writes the counter, which may always grow, because a server that
-- answers and takes no writes (a replica, or one that is out of memory) must count as down.
give()
return answer_all(function() reply(0) end)
