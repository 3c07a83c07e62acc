-- reserve: header (due, the asker's version and generation, then the field), place, the asker's field, place and own
-- place. The asker is the event whose handler publishes; its field is empty if there is none. Answers the version, or 0
-- if the asker is stale.
return each(5, function(a)
  local due, version, generation, rest = unpack_numbers('<I6I7I4', ARGV[a])
  local field, place, asker = sub(ARGV[a], rest), ARGV[a + 1], ARGV[a + 2]
  if asker ~= '' then
    local asker_place, asker_field
    asker_place, asker_field, version = counted(ARGV[a + 3], ARGV[a + 4], asker, version)
    if stale(load(asker_place, asker_field), version, generation) then
      reply(0)
      return
    end
  end
  local given_version = give()
  local slot = load(place, field)
  slot.due = max(slot.due, due)
  stay_open(slot)
  save(place, field, slot)
  reply(given_version)
end)
