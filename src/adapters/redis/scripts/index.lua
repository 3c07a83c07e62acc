-- What the calls write into the index; src/domain/register/index.rs says the same in Rust. Nothing is decided from it,
-- and no call fails for it.
--
-- Details are due 6 bytes, flags 1, and more that only Rust reads; but an id stands behind the flags: 16 bytes where it is a
-- UUID, or its length 2 and the text. <type>:x is a sorted set of members `<kind>:<name>\0<field>` by due time.
local IS_UUID, IS_TEXT = 4, 8

local function due_of(details)
  return (struct.unpack('<I6', details))
end

local function id_of(details)
  local flags = string.byte(details, 7)
  if bit.band(flags, IS_UUID) ~= 0 then
    return string.sub(details, 8, 23)
  elseif bit.band(flags, IS_TEXT) ~= 0 and #details >= 9 then
    return string.sub(details, 8, 9 + struct.unpack('<I2', details, 8))
  end
  return ''
end

local function with_kept(details)
  return string.sub(details, 1, 6) .. string.char(string.byte(details, 7) + HAS_KEPT) .. string.sub(details, 8)
end

local function without_kept(details)
  local flags = string.byte(details, 7)
  if bit.band(flags, HAS_KEPT) == 0 then
    return details
  end
  return string.sub(details, 1, 6) .. string.char(flags - HAS_KEPT) .. string.sub(details, 8)
end

local function member(index, home, field)
  return string.sub(home, #index) .. '\0' .. field
end

-- Kept messages last as long as what is open and due then.
local function keep_kept(home, details)
  local key = kept_key(home)
  local ends = min(max(due_of(details), now) + backlog, END_OF_TIME)
  try('PEXPIREAT', key, text(max(ends, try('PEXPIRETIME', key) or 0)))
end

-- Says whether the message is kept from now on.
local function keep_message(home, field, details, message)
  if not try('HSET', kept_key(home), field, message) then
    return false
  end
  keep_kept(home, details)
  return true
end

-- From now on the index says this of a slot that is written afterwards. The message is empty where none is kept.
local function note(index, home, field, slot, details, message)
  if message ~= '' then
    if not keep_message(home, field, details, message) then
      details = without_kept(details)
    end
  elseif is_kept(slot.details) or slot.leftover then
    try('HDEL', kept_key(home), field)
  end
  slot.leftover = false
  slot.noted = details
  try('ZADD', index, text(due_of(details)), member(index, home, field))
end

-- The same of a later copy of what it says it of already: its message stays.
local function note_copy(index, home, field, slot, details)
  local before = slot.details
  if is_kept(before) and id_of(before) == id_of(details) then
    details = with_kept(details)
    keep_kept(home, details)
    slot.details = false
  end
  note(index, home, field, slot, details, '')
end

-- A message that comes when its event has failed already: the index knows it, and its message is not kept yet.
local function note_message(index, home, field, slot, details, message)
  local known = slot.details
  if message ~= '' and known and not is_kept(known) and id_of(known) == id_of(details)
    and keep_message(home, field, known, message) then
    slot.noted = with_kept(known)
  end
end

local function forget(index, home, field, slot)
  if is_kept(slot.details) then
    try('HDEL', kept_key(home), field)
  end
  if slot.details then
    slot.noted = ''
    try('ZREM', index, member(index, home, field))
  end
end

