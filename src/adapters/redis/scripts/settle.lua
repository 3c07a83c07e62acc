-- settle, a part of turn.lua. An item is: header (version, generation, fence, due, dedup-retention, due time of a copy with the next generation, flags:
-- 1 there is such a copy; token; then the field), place, own place and the lease's place
-- (both empty if they are the place), and the copy's details for its place and for its own place. Answers 1.
local EVENT_FINISHED = '<c3I6I6I4BBI2'

-- The common cases: the run that holds the lease of the place has finished its event, of which nothing newer is known. One
-- read and one write. They return false if the general case has to decide.

-- Whether a place's string begins with the lease of this token, for a slot of one letter in that place: VALUE and 1, the
-- token, until; the length of the name, the name, and the letter of the slot.
local LEASED_BYTES = 2 + LEASE_HEAD + 1

local function is_held(value, token, field)
  return #value > LEASED_BYTES and sub(value, 1, 18) == '\1\1' .. token
    and sub(value, LEASED_BYTES - 1, LEASED_BYTES + 1) == '\1' .. field .. field and unpack_numbers('<I6', value, 19) > now
end

local function end_of_finished(due, dedup)
  return min(now + max(dedup, min(2 * (now - due), backlog)), END_OF_TIME)
end

-- Finishes an event that competes with nothing.
local function finish_event(place, generation, due, dedup, token)
  local key = base .. place
  local value = redis_call('GET', key)
  if not value or not is_held(value, token, 'e') or #value < LEASED_BYTES + 1 + EVENT_BYTES + 2 then
    return false
  end
  local ends, slot_due, slot_generation, _, flags, noted = unpack_numbers('<I6I6I4BBI2', value, LEASED_BYTES + 2)
  if flags ~= BEGUN or ends <= now or slot_due > now or slot_generation ~= generation
    or #value ~= LEASED_BYTES + 1 + EVENT_BYTES + 2 + noted then
    return false
  end
  if noted > 0 then
    local details = sub(value, -noted)
    if is_kept(details) or #details < LEAST then
      return false
    end
    try('ZREM', listed(place, 'e'))
  end
  ends = end_of_finished(due, dedup)
  redis_call('SET', key, pack(EVENT_FINISHED, '\1\0e', ends, slot_due, generation, 0, FINISHED, 0), 'PXAT', expiry(ends))
  return true
end

-- Finishes the newest event of a place that is plain but for the lease.
local function finish_plain(place, field, version, generation, due, dedup, token)
  local key, head = base .. place, HEADS[field]
  local value = redis_call('GET', key)
  if not value or not is_held(value, token, field) then
    return false
  end
  local slot_due, since, mark, at, newest, _, flags, noted
  value = '\1\0' .. sub(value, LEASED_BYTES + 1)
  _, slot_due, since, mark, at, newest, _, flags, noted = plain(value, head)
  if not slot_due or mark ~= version or at ~= generation or newest > version or flags % 32 ~= BEGUN then
    return false
  end
  if noted > 0 then
    try('ZREM', listed(place, field))
  end
  local ends
  if flags >= OVERTAKEN or slot_due > now then
    ends = min(max(slot_due, now) + backlog, END_OF_TIME)
  else
    ends = end_of_finished(due, dedup)
  end
  redis_call('SET', key, pack(PLAIN, head, ends, slot_due, since, mark, at, newest, 0, flags - BEGUN + FINISHED, 0),
    'PXAT', expiry(ends))
  return true
end

local function settle(a)
  local header, place = ARGV[a], ARGV[a + 1]
  local version, generation, fence, due, dedup, copy_due, flags, rest = unpack_numbers('<I7I4I7I6I6I6B', header)
  local token, field = sub(header, rest, rest + 15), sub(header, rest + 16)
  if flags == 0 and ARGV[a + 3] == '' then
    if field == 'e' and finish_event(place, generation, due, dedup, token)
      or HEADS[field] and finish_plain(place, field, version, generation, due, dedup, token) then
      return reply(1)
    end
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
end
