-- own: key that is never there; arguments the topology's name and the cluster name, both empty where nothing is to change. Answers
-- the two names as they were. The caller's own cluster name is left out of this call, or it could not take over.
return each(1, 2, function(_, a)
  local were, topology = { used_by.topology, used_by.broker }, ARGV[a]
  if topology ~= '' then
    used_by = { topology = topology, broker = ARGV[a + 1] ~= '' and ARGV[a + 1] or used_by.broker }
    give()
  end
  return were
end)
