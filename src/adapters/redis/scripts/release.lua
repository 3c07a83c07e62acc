-- release: header (version, generation, due, dedup-retention; token; then the field), place, own place and the lease's
-- place (both empty if they are the place). Answers 1.
return each(4, function(a)
  local header, place = ARGV[a], ARGV[a + 1]
  local version, generation, due, dedup, rest = unpack_numbers('<I7I4I6I6', header)
  local token, field = sub(header, rest, rest + 15), sub(header, rest + 16)
  local lease_place = ARGV[a + 3] == '' and place or ARGV[a + 3]
  reply(1)
  place, field, version = counted(place, ARGV[a + 2], field, version)
  local slot = load(place, field)
  if not give_back(slot, place, field, lease_place, token) then
    return
  end
  if slot.begun and is_at(slot, version, generation) then
    slot.begun = false
    keep(slot, dedup, due)
    save(place, field, slot)
  elseif has_lease(place, field, lease_place) then
    save_value(place, field, slot)
  end
end)
