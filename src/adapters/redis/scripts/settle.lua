-- settle, a part of settle_and_claim.lua. An item is: version, generation, fence, due, dedup-retention, due time of a copy
-- with the next generation, 1 if there is such a copy, token, field, place, own place and the lease's place (both empty if
-- they are the place), and the copy's details for its place and for its own place. Answers 1.
local SETTLE = '<I7I4I7I6I6I6Bc16I2c0I2c0I2c0I2c0I2c0I2c0'
local EVENT_FINISHED = '<c3I6I6I4BBI2'

-- The common cases: the run that holds the lease of the place has finished its event, of which nothing newer is known. One
-- read and one write. They return false if the general case has to decide.

-- The string of a place that has a lease for its only slot, which has one letter: VALUE and 1; the token, until, version,
-- generation, fence, crashes and the name of its slot; the letter and the slot, and the length of the details.
local LEASED = '<I2c16I6I7I4I7BBc1c1'
local LEASED_EVENT, LEASED_PLAIN = LEASED .. 'I6I6I4BBI2', LEASED .. 'I6I6I6I7I4I7BBI2'
local LEASED_BYTES = 2 + LEASE_HEAD + 2
local HAS_LEASE = VALUE + 256

local function end_of_finished(due, dedup)
  return min(now + max(dedup, min(2 * (now - due), backlog)), END_OF_TIME)
end

-- Finishes an event that competes with nothing.
local function finish_event(place, generation, due, dedup, token)
  local key = base .. place
  local value = redis_call('GET', key)
  if not value or #value < LEASED_BYTES + EVENT_BYTES + 2 then
    return false
  end
  local head, holds, leased, _, _, _, _, length, name, letter, ends, slot_due, slot_generation, _, flags, noted =
    unpack_numbers(LEASED_EVENT, value)
  if head ~= HAS_LEASE or holds ~= token or leased <= now or length ~= 1 or name ~= 'e' or letter ~= 'e' or flags ~= BEGUN
    or ends <= now or slot_due > now or slot_generation ~= generation
    or #value ~= LEASED_BYTES + EVENT_BYTES + 2 + noted then
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
  if not value or #value < LEASED_BYTES + SLOT_BYTES + 2 then
    return false
  end
  local lease, holds, leased, _, _, _, _, length, name, letter, ends, slot_due, since, mark, at, newest, _, flags, noted =
    unpack_numbers(LEASED_PLAIN, value)
  if lease ~= HAS_LEASE or holds ~= token or leased <= now or length ~= 1 or name ~= field or letter ~= field
    or flags % 32 ~= BEGUN or ends <= now or mark ~= version or at ~= generation or newest > version
    or #value ~= LEASED_BYTES + SLOT_BYTES + 2 + noted
    or noted > 0 and (noted < LEAST or string.byte(value, -noted + 6) >= HAS_KEPT) then
    return false
  end
  if noted > 0 then
    try('ZREM', listed(place, field))
  end
  if flags >= OVERTAKEN or slot_due > now then
    ends = min(max(slot_due, now) + backlog, END_OF_TIME)
  else
    ends = end_of_finished(due, dedup)
  end
  redis_call('SET', key, pack(PLAIN, head, ends, slot_due, since, mark, at, newest, 0, flags - BEGUN + FINISHED, 0),
    'PXAT', expiry(ends))
  return true
end

local function settle(item)
  local version, generation, fence, due, dedup, copy_due, copied, token, field, place, own_place, lease_place, details,
    own_details = unpack_numbers(SETTLE, item)
  if copied == 0 and lease_place == '' then
    if field == 'e' and finish_event(place, generation, due, dedup, token)
      or HEADS[field] and finish_plain(place, field, version, generation, due, dedup, token) then
      return reply(1)
    end
  end
  copied = copied == 1
  lease_place = lease_place == '' and place or lease_place
  local slot_place
  slot_place, field, version = counted(place, own_place, field, version)
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
      note_copy(slot_place, field, slot, slot_place == place and details or own_details)
    end
  end
  give_back(slot, slot_place, field, lease_place, token)
  save(slot_place, field, slot)
  return reply(1)
end
