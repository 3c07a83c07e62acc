-- record: keys home, index; arguments field, version, dedup-retention, details and message for the index (an empty
-- message is not kept). Answers 1.

-- Notes the details of an event in the index. The event may have been started, and even have failed, before it is
-- recorded.
local function note_recorded(index, home, field, slot, details, message)
  if slot.generation == 0 then
    note(index, home, field, slot, details, message)
  else
    note_message(index, home, field, slot, details, message)
  end
end

-- Records an event that competes with nothing. It has no slot until it is claimed, so only the index notes it.
local function record_alone(index, home, details, message)
  local slot = load(home, 'e')
  if slot.version == 0 and not slot.finished then
    note_recorded(index, home, 'e', slot, details, message)
    if slot.noted and slot.noted ~= '' then
      redis.call('HSET', home, 'e+', slot.noted)
      local ends = min(max(due_of(details), now) + backlog, END_OF_TIME)
      redis.call('PEXPIREAT', home, text(max(ends, redis.call('PEXPIRETIME', home))))
    end
  end
end

-- Removes the two oldest members of the index if they are past the backlog-retention and have no details any more. An
-- event that nobody has handled loses its details with its slot, and its place in the index here.
local function tidy(index)
  for _, old in ipairs(try('ZRANGEBYSCORE', index, '-inf', text(max(now - backlog, 0)), 'LIMIT', 0, 2) or {}) do
    local home, field = string.match(old, '^(.*)%z([^%z]*)$')
    home = home and string.sub(index, 1, -2) .. home
    if not home or try('HEXISTS', home, field .. '+') ~= 1 then
      try('ZREM', index, old)
      if home then
        forget_kept(home, field)
      end
    end
  end
end

if #KEYS > 1 then
  tidy(KEYS[3])
end
return each(2, 5, function(k, a)
  local home, index, field, version = KEYS[k], KEYS[k + 1], ARGV[a], tonumber(ARGV[a + 1])
  local details, message = ARGV[a + 3], ARGV[a + 4]
  if field == 'e' then
    record_alone(index, home, details, message)
    return 1
  end
  -- If `newest` rose to a version that no claim accepts, every event with a lower version would be dropped.
  if not was_given(version) then
    return 1
  end
  local slot = load(home, field)
  if version < max(slot.newest, slot.version, slot.covered) and version ~= slot.version then
    slot.overtaken = true
  end
  slot.newest = max(slot.newest, version)
  if slot.since == 0 and version > slot.version then
    slot.since = now
  end
  keep(slot, tonumber(ARGV[a + 2]), nil)
  if version == slot.newest and version > max(slot.version, slot.covered) then
    note(index, home, field, slot, details, message)
  elseif version == slot.newest and version == slot.version and not slot.finished then
    note_recorded(index, home, field, slot, details, message)
  end
  save(home, field, slot)
  return 1
end)
