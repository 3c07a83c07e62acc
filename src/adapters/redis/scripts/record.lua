-- record: version, dedup-retention, field, place, details and message for the index (the message's length is in four
-- bytes, and an empty one is not kept). Answers 1.
local RECORD = '<I7I6I2c0I2c0I2c0I4c0'

-- Notes the details of an event in the index. The event may have been started, and even have failed, before it is
-- recorded.
local function note_recorded(place, field, slot, details, message)
  if slot.generation == 0 then
    note(place, field, slot, details, message)
  else
    note_message(place, field, slot, details, message)
  end
end

-- Records the newest event of a plain place. Returns whether that is the case.
local function record_plain(place, field, version, details)
  local key, head = base .. place, HEADS[field]
  local value = redis_call('GET', key)
  if not value then
    return false
  end
  local ends, due, since, mark, generation, newest, crashes, flags = plain(value, head)
  if not ends or version < newest or version <= mark then
    return false
  end
  ends = min(max(due, now) + backlog, END_OF_TIME)
  redis_call('SET', key, pack(PLAIN, head, ends, due, since > 0 and since or now, mark, generation, version, crashes,
    flags, #details) .. details, 'PXAT', expiry(ends))
  list(place, field, details)
  return true
end

-- Records an event that competes with nothing. It has no slot until it is claimed, so only the index notes it. One
-- `SET` with NX and GET writes the value of an empty place, or reads it.
local function record_alone(place, details, message)
  if message == '' then
    local value, ends = UNCLAIMED .. pack('<I2', #details) .. details, max(due_of(details), now) + backlog
    if not redis_call('SET', base .. place, value, 'NX', 'PXAT', expiry(ends), 'GET') then
      return list(place, 'e', details)
    end
  end
  local slot = load(place, 'e')
  if not slot.finished then
    note_recorded(place, 'e', slot, details, message)
    if slot.noted and slot.noted ~= '' then
      save_value(place, 'e', slot)
    end
  end
end

-- Whether a slot has details, as far as its key can be read.
local function has_details(place, field)
  if is_dated(field) then
    return try('HEXISTS', dated_key(place), field .. '+') == 1
  end
  local value = try('GET', base .. place)
  local read, _, list = pcall(parts, place, value or '\1\0')
  for i = 1, read and #list or 0, 3 do
    if list[i] == field then
      return list[i + 2]
    end
  end
  return false
end

-- Removes the two oldest members of the index if they are past the backlog-retention and have no details any more. An
-- event that nobody has handled loses its details with its slot, and its place in the index here.
local function tidy(event_type)
  local index = base .. event_type .. ':x'
  for _, old in ipairs(try('ZRANGEBYSCORE', index, '-inf', text(max(now - backlog, 0)), 'LIMIT', 0, 2) or {}) do
    local name, field = string.match(old, '^(.*)%z([^%z]*)$')
    local place = name and event_type .. ':' .. name
    local lasts = place and has_details(place, field)
    if not lasts then
      try('ZREM', index, old)
      if place then
        forget_kept(place, field)
      end
    end
  end
end

if ARGV[5] then
  local _, _, _, place = unpack_numbers(RECORD, ARGV[5])
  tidy(string.match(place, '^[^:]*'))
end
return each(function(item)
  local version, dedup, field, place, details, message = unpack_numbers(RECORD, item)
  reply(1)
  if field == 'e' then
    return record_alone(place, details, message)
  end
  -- If `newest` rose to a version that no claim accepts, every event with a lower version would be dropped.
  if not was_given(version) then
    return
  end
  if message == '' and HEADS[field] and record_plain(place, field, version, details) then
    return
  end
  local slot = load(place, field)
  if version < max(slot.newest, slot.version, slot.covered) and version ~= slot.version then
    slot.overtaken = true
  end
  slot.newest = max(slot.newest, version)
  if slot.since == 0 and version > slot.version then
    slot.since = now
  end
  keep(slot, dedup, nil)
  if version == slot.newest and version > max(slot.version, slot.covered) then
    note(place, field, slot, details, message)
  elseif version == slot.newest and version == slot.version and not slot.finished then
    note_recorded(place, field, slot, details, message)
  end
  save(place, field, slot)
end)
