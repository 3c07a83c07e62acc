-- settle: header (version, generation, fence, due, dedup-retention, due time of a copy with the next generation, flags:
-- 1 there is such a copy; token; then the field), place, own place and the lease's place
-- (both empty if they are the place), and the copy's details for its place and for its own place. Answers 1.
-- The common case: the run that holds an event's own lease has finished the event. One read and one write.
local finished_end, finished_text

local function finish_first(place, generation, due, dedup, token)
  local key = base .. place
  local value = redis_call('GET', key)
  -- The lease of the token for the slot `e`, which has begun and nothing else, and its details. The head is VALUE, 1, the
  -- lease with a field of one letter, and the letter of the slot.
  if not value or sub(value, 1, 18) ~= '\1\1' .. token or sub(value, 44, 46) ~= '\1ee' then
    return false
  end
  local ends, slot_due, slot_generation, _, flags, noted = unpack_numbers('<I6I6I4BBI2', value, 47)
  if flags ~= BEGUN or ends <= now or slot_due > now or slot_generation ~= generation
    or unpack_numbers('<I6', value, 19) <= now or #value ~= 66 + noted then
    return false
  end
  if noted > 0 then
    local details = sub(value, 67)
    if is_kept(details) or not outlasts('e', details) then
      return false
    end
    try('ZREM', listed(place, 'e'))
  end
  ends = min(now + max(dedup, min(2 * (now - due), backlog)), END_OF_TIME)
  if ends ~= finished_end then
    finished_end, finished_text = ends, text(ends)
  end
  redis_call('SET', key, '\1\0e' .. pack(EVENT, ends, slot_due, generation, 0, FINISHED) .. '\0\0', 'PXAT', finished_text)
  return true
end

return each(6, function(a)
  local header, place = ARGV[a], ARGV[a + 1]
  local version, generation, fence, due, dedup, copy_due, flags, rest = unpack_numbers('<I7I4I7I6I6I6B', header)
  local token, field = sub(header, rest, rest + 15), sub(header, rest + 16)
  if field == 'e' and flags == 0 and ARGV[a + 3] == '' and finish_first(place, generation, due, dedup, token) then
    return reply(1)
  end
  local copied = flags == 1
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
  give_back(slot, slot_place, field, lease_place, token)
  save(slot_place, field, slot)
  return reply(1)
end)
