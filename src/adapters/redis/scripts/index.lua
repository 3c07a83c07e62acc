-- Writes the index. src/domain/register/index.rs has the same rules in Rust. Nothing is decided from the index, and no
-- call fails because of it.
--
-- Details are the due time in 6 bytes, the flags in 1, and parts that only Rust reads. Only the id is read here, which
-- follows the flags: 16 bytes of a UUID, or its length in 2 bytes and its text. <type>:x is a sorted set of members
-- `<kind>:<name>\0<field>` by due time.
local IS_UUID, IS_TEXT = 4, 8

local function due_of(details)
  return (unpack_numbers('<I6', details))
end

local function id_of(details)
  local flags = string.byte(details, 7)
  if bit.band(flags, IS_UUID) ~= 0 then
    return sub(details, 8, 23)
  elseif bit.band(flags, IS_TEXT) ~= 0 and #details >= 9 then
    return sub(details, 8, 9 + unpack_numbers('<I2', details, 8))
  end
  return ''
end

local function with_kept(details)
  return sub(details, 1, 6) .. string.char(string.byte(details, 7) + HAS_KEPT) .. sub(details, 8)
end

local function without_kept(details)
  local flags = string.byte(details, 7)
  if bit.band(flags, HAS_KEPT) == 0 then
    return details
  end
  return sub(details, 1, 6) .. string.char(flags - HAS_KEPT) .. sub(details, 8)
end

-- Returns the key of the index in which a place is, and the place's name there. Most places of a batch have one type.
local listed_type, index_of_type = ':', nil

local function listed(place, field)
  if sub(place, 1, #listed_type) ~= listed_type then
    listed_type = sub(place, 1, (string.find(place, ':', 1, true)))
    index_of_type = base .. listed_type .. 'x'
  end
  return index_of_type, sub(place, #listed_type + 1) .. '\0' .. field
end

-- Lets the index expire after all events that are in it, in whole days, so that most calls find it so. A claim keeps an event for
-- another `backlog` and does not list it again.
local DAY, lasts = 24 * 3600 * 1000, {}

local function keep_index(index, due)
  local ends = max(due, now) + 2 * backlog
  ends = min(ends - ends % DAY + DAY, END_OF_TIME)
  local set = lasts[index] or try('PEXPIRETIME', index) or ends
  if set == -1 then
    -- It is new, or of a version that let it live for ever.
    local last = try('ZRANGE', index, -1, -1, 'WITHSCORES') or {}
    ends = max(ends, min((tonumber(last[2]) or 0) + 2 * backlog + DAY, END_OF_TIME))
  end
  if ends > set then
    try('PEXPIREAT', index, text(ends))
    set = ends
  end
  lasts[index] = set
end

-- Puts an event into the index. Most events of a batch are due together.
local due_before, score_before

local function list(place, field, details)
  local due = due_of(details)
  if due ~= due_before then
    due_before, score_before = due, text(due)
  end
  local index, name = listed(place, field)
  -- Otherwise the key has a foreign value.
  if try('ZADD', index, score_before, name) then
    keep_index(index, due)
  end
end

-- Sets the expiry of kept messages: they last as long as an open slot that is due at the same time.
local function keep_kept(place, details)
  local key = kept_key(place)
  local ends = min(max(due_of(details), now) + backlog, END_OF_TIME)
  try('PEXPIREAT', key, text(max(ends, try('PEXPIRETIME', key) or 0)))
end

-- Keeps a message. Returns whether that worked.
local function keep_message(place, field, details, message)
  if not try('HSET', kept_key(place), field, message) then
    return false
  end
  keep_kept(place, details)
  return true
end

-- Sets the details of a slot, which the caller writes afterwards. The message is empty if none is kept.
local function note(place, field, slot, details, message)
  if message ~= '' then
    if not keep_message(place, field, details, message) then
      details = without_kept(details)
    end
  elseif is_kept(slot.details) or slot.leftover then
    try('HDEL', kept_key(place), field)
  end
  slot.leftover = false
  slot.noted = details
  list(place, field, details)
end

-- Sets the details for a later copy. If the index has details of the same event, its kept message stays.
local function note_copy(place, field, slot, details)
  local before = slot.details
  if is_kept(before) and id_of(before) == id_of(details) then
    details = with_kept(details)
    keep_kept(place, details)
    slot.details = false
  end
  note(place, field, slot, details, '')
end

-- Keeps the message of an event that has failed before it was recorded: the index has its details, and not yet its
-- message.
local function note_message(place, field, slot, details, message)
  local known = slot.details
  if message ~= '' and known and not is_kept(known) and id_of(known) == id_of(details)
    and keep_message(place, field, known, message) then
    slot.noted = with_kept(known)
  end
end

-- Removes a slot's details from the index, and its kept message. The caller writes the slot afterwards.
local function forget(place, field, slot)
  if is_kept(slot.details) then
    try('HDEL', kept_key(place), field)
  end
  if slot.details then
    slot.noted = ''
    try('ZREM', listed(place, field))
  end
end

