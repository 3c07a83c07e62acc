-- claim: header (version, generation, lease in ms, max-wait in ms, flags: 1 alone; token; then the
-- field), place, own place and the lease's place (both empty if they are the place). Answers two numbers: what
-- to do (and 8 times the crashes), and the fence or the date of `later`.
local STALE, REPLACED, LATER_THAN, BUSY, ALONE, RUN_OWN, RUN = 0, 1, 2, 3, 4, 5, 6

-- A worker that claims has found its topology on its broker. So it may restore the owner of an emptied register, before
-- the next `apply` does.
if used_by.broker == '' then
  used_by.broker = broker
end

local function answer(what, number)
  reply(what)
  reply(number)
end

-- The common case: the first claim of an event that competes with nothing, whose lease is its own. One read and one
-- write, of a value whose parts are mostly those of the whole batch.
local UNCLAIMED = '\1\0e' .. string.rep('\0', EVENT_BYTES)
local first_slot = '\1ee' .. pack(EVENT, min(now + backlog, END_OF_TIME), 0, 0, 0, BEGUN)
local first_lease, first_duration, first_end

local function claim_first(place, duration, token)
  local key = base .. place
  local value = redis_call('GET', key)
  local details = '\0\0'
  if duration ~= first_duration then
    local ends = min(now + duration, END_OF_TIME)
    first_lease, first_duration = pack('<I6I7I4', ends, 0, 0), duration
    first_end = max(min(now + backlog, END_OF_TIME), ends)
  end
  local ends = first_end
  if value then
    -- The details of the event that was recorded, and nothing else: the letter, an absent slot, and their length. Anything
    -- else is for the general case.
    if sub(value, 1, 21) ~= UNCLAIMED then
      return nil
    end
    details = sub(value, 22)
    if #details < 2 + LEAST or unpack_numbers('<I6', details, 3) + backlog <= now then
      return nil
    end
    ends = max(ends, unpack_numbers('<I6', details, 3) + backlog)
  end
  local fence = give()
  redis_call('SET', key, '\1\1' .. token .. first_lease .. pack('<I7', fence) .. '\0' .. first_slot .. details,
    'PXAT', text(ends))
  return fence
end

return each(4, function(a)
  local header, place = ARGV[a], ARGV[a + 1]
  local version, generation, duration, max_wait, flags, rest = unpack_numbers('<I7I4I6I6B', header)
  local token, field = sub(header, rest, rest + 15), sub(header, rest + 16)
  if field == 'e' and generation == 0 and ARGV[a + 3] == '' then
    local fence = claim_first(place, duration, token)
    if fence then
      return answer(RUN, fence)
    end
  end
  local alone = flags == 1
  local lease_place = ARGV[a + 3] == '' and place or ARGV[a + 3]
  local slot_place, slot_field, counts = counted(place, ARGV[a + 2], field, version)
  local slot = load(slot_place, slot_field)
  local same = has_lease(slot_place, slot_field, lease_place)
  local lease = holder(lease_at(slot, slot_place, slot_field, lease_place))
  if lease and lease.token == token then
    local own, held, held_place, held_field = lease.field == field, slot, place, field
    if not own then
      held_place, held_field = ARGV[a + 2] == '' and place or ARGV[a + 2], 'e'
    end
    if held_place ~= slot_place or held_field ~= slot_field then
      held = load(held_place, held_field)
    end
    -- A repeated claim: the caller did not get the first answer, and the event was cancelled since. The lease stays: if
    -- the call only arrived twice, the first answer was read and the handler runs.
    if stale(held, lease.version, lease.generation) then
      return answer(STALE, 0)
    end
    return answer((own and RUN or RUN_OWN) + 8 * lease.crashes, lease.fence)
  end

  if stale(slot, counts, generation) then
    return answer(STALE, 0)
  end
  if replaced(slot, slot_field, counts) and not (slot_field == 'i' and counts > slot.version
    and slot.since > 0 and now - slot.since > max_wait) then
    return answer(REPLACED, 0)
  end
  if slot.later > now and slot.later_version == counts and slot.later_generation == generation then
    return answer(LATER_THAN, slot.later)
  end
  if lease then
    return answer(BUSY, 0)
  end
  local crashes = 0
  if is_at(slot, counts, generation) then
    crashes = min(slot.crashes + (slot.begun and 1 or 0), MOST_CRASHES)
  end
  if crashes >= 2 and not alone then
    return answer(ALONE, 0)
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
  return answer((slot_field == field and RUN or RUN_OWN) + 8 * crashes, fence)
end)
