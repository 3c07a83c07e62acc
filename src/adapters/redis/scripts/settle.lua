-- settle: header (version, generation, fence, due, dedup-retention, due time of a copy with the next generation, flags:
-- 1 there is such a copy, 2 the lease is a reference's; token; then the field), place, own place and the lease's place
-- (both empty if they are the place), and the copy's details for its place and for its own place. Answers 1.
return each(6, function(a)
  local header, place = ARGV[a], ARGV[a + 1]
  local version, generation, fence, due, dedup, copy_due, flags, rest = unpack_numbers('<I7I4I7I6I6I6B', header)
  local token, field = sub(header, rest, rest + 15), sub(header, rest + 16)
  local copied, by_reference = flags % 2 == 1, flags >= 2
  local lease_place = ARGV[a + 3] == '' and place or ARGV[a + 3]
  local slot_place
  slot_place, field, version = counted(place, ARGV[a + 2], field, version)
  local slot = load(slot_place, field)
  local next = min(generation + 1, LAST_GENERATION)
  -- In slot `f` a run must not hide what a newer run serves, which has covered the slot since.
  local counts = fence >= slot.covered
  if copied then
    slot.due = max(slot.due, copy_due)
  end
  if counts and copied then
    raise(slot, version, false, next)
    -- The copy of the last generation has that generation too. The mark does not rise then, and the copy counts as not
    -- started all the same.
    if generation == next and is_at(slot, version, next) then
      slot.begun, slot.crashes = false, 0
    end
  elseif counts then
    raise(slot, version, true, generation)
  end
  keep(slot, dedup, due)
  -- The index may have a newer event by now, whose details must stay.
  if counts and not slot.cancelled and max(slot.newest, slot.version) <= version then
    if not copied then
      forget(slot_place, field, slot)
    elseif is_at(slot, version, next) then
      note_copy(slot_place, field, slot, ARGV[a + (slot_place == place and 4 or 5)])
    end
  end
  give_back(slot, slot_place, lease_place, by_reference, token)
  save(slot_place, field, slot)
  return reply(1)
end)
