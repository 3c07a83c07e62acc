-- claim, a part of settle_and_claim.lua. An item is: version, generation, lease in ms, max-wait in ms, 1 if the event
-- runs alone, token, field, place, own place and the lease's place (both empty if they are the place). Answers two numbers:
-- what to do (and 8 times the crashes), and the fence or the date of `later`.
local CLAIM = '<I7I4I6I6Bc16I2c0I2c0I2c0I2c0'
local STALE, REPLACED, LATER_THAN, BUSY, ALONE, RUN_OWN, RUN = 0, 1, 2, 3, 4, 5, 6

local function grant(what, number)
  reply(what)
  reply(number)
end

local EVENT_LEASE = '<c2c16I6I7I4I7BBc1c1I6I6I4BB'
local NOTED_EVENT = '<c' .. #UNCLAIMED .. 'I2I6'
local PLAIN_LEASE = '<c2c16I6I7I4I7BBc1c1I6I6I6I7I4I7BB'

-- The common cases: the first claim of a copy, whose lease is in its place. One read and one write. They return the fence,
-- or nil if the general case has to decide.

-- Claims an event that competes with nothing. The index may know it.
local function claim_event(key, duration, token)
  local value = redis_call('GET', key)
  local leased, ends, details = min(now + duration, END_OF_TIME), min(now + backlog, END_OF_TIME), '\0\0'
  local last_end = max(ends, leased)
  if value then
    -- The details of the event that was recorded, and nothing else.
    if #value < #UNCLAIMED + 2 + LEAST then
      return nil
    end
    local head, _, due = unpack_numbers(NOTED_EVENT, value)
    if head ~= UNCLAIMED or due + backlog <= now then
      return nil
    end
    details, last_end = sub(value, #UNCLAIMED + 1), max(last_end, due + backlog)
  end
  local fence = give()
  redis_call('SET', key, pack(EVENT_LEASE, '\1\1', token, leased, 0, 0, fence, 0, 1, 'e', 'e', ends, 0, 0, 0, BEGUN)
    .. details, 'PXAT', expiry(last_end))
  return fence
end

-- Claims the newest event of a plain place.
local function claim_plain(key, field, version, generation, duration, token)
  local value = redis_call('GET', key)
  if not value then
    return nil
  end
  local ends, due, _, mark, at, newest, crashes, flags, _, rest = plain(value, HEADS[field])
  if not ends or version < newest or version < mark or not was_given(version) then
    return nil
  end
  -- A copy of an event that was claimed before: only one that has not been started since it was settled.
  if version == mark and (generation < at or crashes > 0 or flags % 4 > 0) then
    return nil
  end
  local leased = min(now + duration, END_OF_TIME)
  ends = min(max(due, now) + backlog, END_OF_TIME)
  local fence = give()
  redis_call('SET', key, pack(PLAIN_LEASE, '\1\1', token, leased, version, generation, fence, 0, 1, field, field, ends, due,
    0, version, generation, newest, 0, flags >= OVERTAKEN and BEGUN + OVERTAKEN or BEGUN) .. sub(value, rest - 2),
    'PXAT', expiry(max(ends, leased)))
  return fence
end

local function claim(item)
  local version, generation, duration, max_wait, alone, token, field, place, own_place, lease_place =
    unpack_numbers(CLAIM, item)
  if lease_place == '' then
    local fence
    if HEADS[field] then
      fence = claim_plain(base .. place, field, version, generation, duration, token)
    elseif field == 'e' and generation == 0 then
      fence = claim_event(base .. place, duration, token)
    end
    if fence then
      return grant(RUN, fence)
    end
  end
  lease_place = lease_place == '' and place or lease_place
  local slot_place, slot_field, counts = counted(place, own_place, field, version)
  local slot = load(slot_place, slot_field)
  local same = has_lease(slot_place, slot_field, lease_place)
  local lease = holder(lease_at(slot, slot_place, slot_field, lease_place))
  if lease and lease.token == token then
    local own, held, held_place, held_field = lease.field == field, slot, place, field
    if not own then
      held_place, held_field = own_place == '' and place or own_place, 'e'
    end
    if held_place ~= slot_place or held_field ~= slot_field then
      held = load(held_place, held_field)
    end
    -- A repeated claim: the caller did not get the first answer, and the event was cancelled since. The lease stays: if
    -- the call only arrived twice, the first answer was read and the handler runs.
    if stale(held, lease.version, lease.generation) then
      return grant(STALE, 0)
    end
    return grant((own and RUN or RUN_OWN) + 8 * lease.crashes, lease.fence)
  end

  if stale(slot, counts, generation) then
    return grant(STALE, 0)
  end
  if replaced(slot, slot_field, counts) and not (slot_field == 'i' and counts > slot.version
    and slot.since > 0 and now - slot.since > max_wait) then
    return grant(REPLACED, 0)
  end
  -- In slot `f` the first run of an older event would serve the event that was put off.
  if slot.later > now and (slot.later_version == counts and slot.later_generation == generation
    or slot_field == 'f' and slot.version < counts and counts < slot.later_version) then
    return grant(LATER_THAN, slot.later)
  end
  if lease then
    return grant(BUSY, 0)
  end
  local crashes = 0
  if is_at(slot, counts, generation) then
    crashes = min(slot.crashes + (slot.begun and 1 or 0), MOST_CRASHES)
  end
  if crashes >= 2 and alone == 0 then
    return grant(ALONE, 0)
  end

  local fence = give()
  local given_lease = lease_of({
    token = token, field = slot_field, version = counts, generation = generation, fence = fence, crashes = crashes,
  }, duration)
  if same then
    slot.lease = given_lease
  else
    change_other_lease(lease_place, given_lease)
  end
  -- Only the first run of a version covers. A later claim may come so late that its caller is gone and nothing runs.
  if slot_field == 'f' and counts > slot.version then
    slot.covered = max(slot.covered, fence)
  end
  raise(slot, counts, false, generation)
  slot.begun, slot.crashes = true, crashes
  slot.since = slot.newest > counts and now or 0
  stay_open(slot)
  save(slot_place, slot_field, slot)
  return grant((slot_field == field and RUN or RUN_OWN) + 8 * crashes, fence)
end
