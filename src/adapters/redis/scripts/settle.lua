-- settle: header (version, generation, fence, due, dedup-retention, due time of a copy with the next generation, flags:
-- 1 there is such a copy, 2 the lease is a reference's; token; then the field), place, own place and the lease's place
-- (both empty if they are the place), and the copy's details for its place and for its own place. Answers 1.
-- The common case: the run that holds an event's own lease has finished the event. One read and one write.
local finished_end, finished_text

local function finish_first(place, generation, due, dedup, token)
  local key = base .. place
  local value = redis_call('GET', key)
  if not value then
    return false
  end
  local ends, slot_due, slot_generation, _, flags = unpack_numbers(EVENT, value)
  -- Flags 66 are those of a slot that has begun and has a lease, and nothing else.
  if flags ~= BEGUN + LEASED or ends <= now or slot_due > now or slot_generation ~= generation
    or sub(value, 19, 34) ~= token or unpack_numbers('<I6', value, 35) <= now then
    return false
  end
  local details = sub(value, 19 + LEASE_HEAD + string.byte(value, 18 + LEASE_HEAD))
  if details ~= '' then
    if is_kept(details) or not outlasts('e', details) then
      return false
    end
    try('ZREM', listed(place, 'e'))
  end
  ends = min(now + max(dedup, min(2 * (now - due), backlog)), END_OF_TIME)
  if ends ~= finished_end then
    finished_end, finished_text = ends, text(ends)
  end
  redis_call('SET', key, pack(EVENT, ends, slot_due, generation, 0, FINISHED), 'PXAT', finished_text)
  return true
end

return each(6, function(a)
  local header, place = ARGV[a], ARGV[a + 1]
  local version, generation, fence, due, dedup, copy_due, flags, rest = unpack_numbers('<I7I4I7I6I6I6B', header)
  local token, field = sub(header, rest, rest + 15), sub(header, rest + 16)
  if field == 'e' and flags == 0 and ARGV[a + 3] == '' and finish_first(place, generation, due, dedup, token) then
    return reply(1)
  end
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
