-- try_write: no item. Answers 0. Fails as ping does on a server that takes no writes, and changes nothing: it writes the counter
-- as it is. A counter that is missing stays missing, so that workers and publishers still learn that Redis was emptied.
return answer_all(function()
  redis_call('SET', KEYS[1], counter)
  if given == 0 then
    redis_call('DEL', KEYS[1])
  end
  reply(0)
end)
