-- Shared by all scripts, each of which answers a batch of calls about one shard. docs/register.md has the protocol, and
-- src/domain/register/transitions.rs has the same rules in Rust.
--
-- KEYS[1] is the shard's counter, KEYS[2] a key that never exists. With it, no node of a Cluster serves the call while
-- the hash slot moves and some keys are on another node. ARGV[1] is the backlog-retention in ms, ARGV[2] the time in us
-- in tests and otherwise empty, ARGV[3] the caller's cluster name, empty if it is not known, and ARGV[4] the beginning
-- of all keys of the shard. The items of the batch follow from ARGV[5]. An item names a reference or an event by its
-- place, which is a key without that beginning: `<type>:r:<reference>` or `<type>:i:<id>`.
--
-- An item is one argument, packed, because Redis spends more time on ten arguments than on the rules. A text in it
-- follows its length in two bytes. Lua's numbers are doubles. They are exact up to 2^53, and a version in us is below that. But tostring and
-- .. keep only 14 digits.

local max, min, floor, sub = math.max, math.min, math.floor, string.sub
local redis_call, pack, unpack_numbers = redis.call, struct.pack, struct.unpack

local END_OF_TIME = 2 ^ 48 - 1 -- six bytes
local LAST_GENERATION = 2 ^ 32 - 1 -- four bytes
local MOST_CRASHES = 255 -- one byte

-- A place has one string with its lease and its slots of one letter: `i`, `f` and `d` of a reference, `e` of an event. One
-- command reads it, and one writes it. The dated slots of a reference (`d:<ms>`, `q:<ms>`), of which there may be very
-- many, are the fields of a hash, `<type>:d:<reference>`.
--
-- The string is the byte VALUE, 1 and the lease or 0, and for each slot its letter, the slot, the length of its details in
-- two bytes, and the details. A slot without a state has `until` 0: then the index alone knows its event.
local VALUE = 1

-- The form of a slot of a reference: until, due, since, mark.version, mark.generation, newest, crashes, flags; then
-- `later` and `covered` if their flags are set. It has at most 62 bytes. Above 64 Redis would give up the compact form
-- of small hashes.
local SLOT = '<I6I6I6I7I4I7BB'
local LATER = '<I6I7I4'
local COVERED = '<I7'
-- The form of the slot `e`: until, due, mark.generation, crashes, flags; then `later` (date and generation) and the
-- version of a cancel if their flags are set. Copies in this slot have no version.
local EVENT = '<I6I6I4BB'
local EVENT_LATER = '<I6I4'
local VERSION = '<I7'
local SLOT_BYTES, EVENT_BYTES = 38, 18
-- The common case is a place with nothing but one slot `i` or `d` without `later` and `covered`. Each script first tries
-- to unpack its string with one command: the beginning (VALUE, no lease, the letter) as one number, which is in HEADS by
-- the letter, the slot, and the length of the details. Nothing is decided differently for this case, it only takes less
-- time.
local PLAIN = '<I3I6I6I6I7I4I7BBI2'
local PLAIN_BYTES, PLAIN_HEAD = 43, 3
local HEADS = { i = VALUE + 65536 * string.byte('i'), d = VALUE + 65536 * string.byte('d') }
-- The string of an event that the index knows, and that was never claimed: what stands before its details and their
-- length.
local UNCLAIMED = '\1\0e' .. string.rep('\0', EVENT_BYTES)
local FINISHED, BEGUN, HAS_LATER, HAS_COVERED, CANCELLED, OVERTAKEN = 1, 2, 4, 8, 16, 32
local HAS_VERSION = HAS_COVERED

-- The form of a lease: the token's 16 bytes, then until, version, generation, fence, crashes and the length of the
-- slot's field, then the field.
local LEASE = '<I6I7I4I7BB'
local LEASE_HEAD = 42

-- Saving a dated slot also removes expired slots of its hash. All fields of a hash with up to SMALL fields are checked.
-- Of a larger hash SAMPLE random fields are checked: whenever a slot is added, so that expired slots go faster than new
-- ones come, and otherwise once in a batch. Sampling a hash of thousands of fields takes longer than all other work
-- for one slot, and all slots of a batch may be in one hash.
local SMALL, SAMPLE = 16, 8
local looked_at = {}

local backlog, base = tonumber(ARGV[1]), ARGV[4]
local now_us = tonumber(ARGV[2])
if not now_us then
  local time = redis_call('TIME')
  now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local now = floor(now_us / 1000)

-- The counter's value: the highest version given, the topology's name in the last `apply`, and the cluster name of the
-- broker, with `|` between them. A name that is not known is empty or left out. `own` writes the names, and `claim`
-- writes the broker's name if there is none.
local counter, used_by, broker = redis_call('GET', KEYS[1]) or '0', {}, ARGV[3]
local given
given, used_by.topology, used_by.broker = string.match(counter, '^([^|]*)|?([^|]*)|?(.*)$')
given = tonumber(given)
local last = given

local function is_used_by_another()
  return broker ~= '' and used_by.broker ~= '' and broker ~= used_by.broker
end

-- All nodes of a named cluster return its name. In an unnamed cluster each node returns its own name (`rabbit@host`),
-- so an owner with such a name may be this broker.
if is_used_by_another() and not string.find(used_by.broker, '@', 1, true) then
  return redis.error_reply('TAKEN ' .. used_by.broker .. '|' .. broker)
end

local function text(number)
  return string.format('%.0f', number)
end

-- Returns the time at which a key expires, as text: the whole second in which its last part expires, so that most keys
-- of a batch have the same text.
local ends_before, text_before

local function expiry(ends)
  ends = ends - ends % 1000 + 1000
  if ends ~= ends_before then
    ends_before, text_before = ends, text(min(ends, END_OF_TIME))
  end
  return text_before
end

local function value_of_counter()
  local names = used_by.topology .. '|' .. used_by.broker
  return names == '|' and text(last) or text(last) .. '|' .. names
end

-- Calls a command on the index or on kept messages. Its error fails no call, because nothing is decided from them: if
-- Redis refuses the command (the key has a foreign value), this returns nil, and `damage` goes with the answers into
-- the log.
local damage = false

local function try(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    damage = damage or key .. ': ' .. reply.err
    return nil
  end
  return reply
end

-- Calls a command for a reading call. An error names the key, for the people who read.
local function ask(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    error({ err = reply.err .. ' (' .. key .. ')' }, 0)
  end
  return reply
end

local function give()
  last = max(last + 1, now_us)
  return last
end

-- Whether reserve can have given this version. Any other version counts as absent.
local function was_given(version)
  return version >= 1 and version <= max(last, now_us)
end

-- Returns the place, the field and the version that count for a copy. `own` is empty if it is the same place.
local function counted(place, own, field, version)
  if field == 'e' then
    return place, field, 0
  elseif was_given(version) then
    return place, field, version
  end
  return own == '' and place or own, 'e', 0
end

-- A slot that does not exist. One that has expired counts as such.
local function absent()
  return {
    ends = 0, due = 0, since = 0, version = 0, generation = 0, newest = 0, covered = 0, crashes = 0,
    finished = false, begun = false, cancelled = false, overtaken = false, later = 0,
  }
end

local function set_flags(slot, flags)
  slot.finished = flags % 2 >= FINISHED
  slot.begun = flags % 4 >= BEGUN
  slot.cancelled = flags % 32 >= CANCELLED
  slot.overtaken = flags % 64 >= OVERTAKEN
end

local function flags_of(slot)
  return (slot.finished and FINISHED or 0) + (slot.begun and BEGUN or 0) + (slot.cancelled and CANCELLED or 0)
    + (slot.overtaken and OVERTAKEN or 0)
end

-- Unpacks a slot of a reference.
local function unpacked(packed)
  local slot = absent()
  if not packed or unpack_numbers('<I6', packed) <= now then
    return slot
  end
  local flags, rest
  slot.ends, slot.due, slot.since, slot.version, slot.generation, slot.newest, slot.crashes, flags, rest =
    unpack_numbers(SLOT, packed)
  set_flags(slot, flags)
  if flags % 8 >= HAS_LATER then
    slot.later, slot.later_version, slot.later_generation, rest = unpack_numbers(LATER, packed, rest)
  end
  if flags % 16 >= HAS_COVERED then
    slot.covered = unpack_numbers(COVERED, packed, rest)
  end
  return slot
end

-- Unpacks the slot `e` of an event.
local function unpacked_event(packed)
  local slot = absent()
  if not packed or unpack_numbers('<I6', packed) <= now then
    return slot
  end
  local flags, rest
  slot.ends, slot.due, slot.generation, slot.crashes, flags, rest = unpack_numbers(EVENT, packed)
  set_flags(slot, flags)
  if flags % 8 >= HAS_LATER then
    slot.later, slot.later_generation, rest = unpack_numbers(EVENT_LATER, packed, rest)
    slot.later_version = 0
  end
  if flags % 16 >= HAS_VERSION then
    slot.version = unpack_numbers(VERSION, packed, rest)
  end
  return slot
end

local function packed_slot(slot)
  local flags, more = flags_of(slot), ''
  if slot.later > 0 then
    flags, more = flags + HAS_LATER, pack(LATER, slot.later, slot.later_version, slot.later_generation)
  end
  if slot.covered > 0 then
    flags, more = flags + HAS_COVERED, more .. pack(COVERED, slot.covered)
  end
  return pack(SLOT, slot.ends, slot.due, slot.since, slot.version, slot.generation, slot.newest, slot.crashes, flags)
    .. more
end

local function packed_event(slot)
  local flags, more = flags_of(slot), ''
  if slot.later > 0 then
    flags, more = flags + HAS_LATER, pack(EVENT_LATER, slot.later, slot.later_generation)
  end
  if slot.version > 0 then
    flags, more = flags + HAS_VERSION, more .. pack(VERSION, slot.version)
  end
  return pack(EVENT, slot.ends, slot.due, slot.generation, slot.crashes, flags) .. more
end

local function foreign(place)
  error({ err = 'WRONGTYPE the value was not written by the register (' .. base .. place .. ')' }, 0)
end

-- Splits a place's string into its lease, nil if there is none, and its slots: letter, packed slot, details, one after
-- the other in one list.
local function parts(place, value)
  if string.byte(value, 1) ~= VALUE or #value < 2 then
    foreign(place)
  end
  local list, count, at, lease = {}, 0, 3, nil
  if string.byte(value, 2) == 1 then
    local length = LEASE_HEAD + (string.byte(value, at + LEASE_HEAD - 1) or foreign(place))
    lease, at = sub(value, at, at + length - 1), at + length
  end
  while at <= #value do
    local letter = sub(value, at, at)
    local length = letter == 'e' and EVENT_BYTES or SLOT_BYTES
    local flags = string.byte(value, at + length) or foreign(place)
    if flags % 8 >= HAS_LATER then
      length = length + (letter == 'e' and 10 or 17)
    end
    if flags % 16 >= HAS_COVERED then
      length = length + 7
    end
    local next = at + 1 + length + 2
    if next > #value + 1 then
      foreign(place)
    end
    local noted = unpack_numbers('<I2', value, next - 2)
    list[count + 1], list[count + 2] = letter, sub(value, at + 1, at + length)
    list[count + 3] = noted > 0 and sub(value, next, next + noted - 1) or false
    count, at = count + 3, next + noted
  end
  return lease, list
end

-- Returns the key of the hash with the dated slots of a reference.
local dated_place, dated

local function dated_key(place)
  if place ~= dated_place then
    local event_type, name = string.match(place, '^([^:]*:)r:(.*)$')
    dated_place, dated = place, base .. event_type .. 'd:' .. name
  end
  return dated
end

-- Returns the key of the hash with the messages that are kept of a place's events, by field:
-- <type>:p:<kind>:<name>. Few types keep messages, so the calls build this key only where it is needed.
local function kept_key(place)
  local event_type, name = string.match(place, '^([^:]*:)(.*)$')
  return base .. event_type .. 'p:' .. name
end

-- The index's details of a slot. They begin with the due time. They last as long as the slot. An event without
-- coalescing has no slot until it is claimed: then its details last as long as an open slot would. Details shorter than
-- the due time and the flags are foreign, and count as none.
local LEAST = 7

local function end_of_details(details)
  return #details >= LEAST and unpack_numbers('<I6', details) + backlog or 0
end

local function outlasts(field, details)
  return field == 'e' and end_of_details(details) > now
end

local HAS_KEPT = 64

local function is_kept(details)
  return details and #details >= LEAST and bit.band(string.byte(details, 7), HAS_KEPT) ~= 0
end

-- Unpacks the string of a place in the common case, see PLAIN: until, due, since, mark.version, mark.generation, newest,
-- crashes, flags, the length of the details and where they begin. Returns nil for every other string, also if the slot
-- has expired or a message is kept.
local function plain(value, head)
  if not head or #value < PLAIN_BYTES then
    return nil
  end
  local is, ends, due, since, version, generation, newest, crashes, flags, noted, rest = unpack_numbers(PLAIN, value)
  if is ~= head or ends <= now or flags % 16 >= HAS_LATER or #value ~= PLAIN_BYTES + noted
    or noted > 0 and (noted < LEAST or string.byte(value, rest + 6) >= HAS_KEPT) then
    return nil
  end
  return ends, due, since, version, generation, newest, crashes, flags, noted, rest
end

-- Deletes a kept message. An error is ignored (the hash slot may be moving to another node), because the key expires by
-- itself.
local function forget_kept(place, field)
  redis.pcall('HDEL', kept_key(place), field)
end

local function is_dated(field)
  return #field > 1
end

-- Drops details that have expired. `leftover` means that their message is still kept.
local function without_old_details(slot, field)
  local details = slot.details
  if details and (#details < LEAST or slot.ends == 0 and not outlasts(field, details)) then
    slot.leftover = is_kept(details)
    slot.details, slot.noted = false, ''
  end
  return slot
end

-- Reads a slot with its details. A slot of one letter comes with the lease of its place, and with the other slots there
-- (`others`, `others_end`). An empty field reads these alone.
local function load(place, field)
  if is_dated(field) then
    local packed = redis_call('HMGET', dated_key(place), field, field .. '+')
    local slot = unpacked(packed[1])
    slot.details, slot.is_new = packed[2], not packed[1]
    return without_old_details(slot, field)
  end
  local value = redis_call('GET', base .. place)
  if not value then
    return absent()
  end
  local slot, others, others_end = nil, '', 0
  local lease, list = parts(place, value)
  for i = 1, #list, 3 do
    local letter, packed, details = list[i], list[i + 1], list[i + 2]
    if letter == field then
      slot = letter == 'e' and unpacked_event(packed) or unpacked(packed)
      slot.details = details
    else
      local ends = unpack_numbers('<I6', packed)
      if details and letter == 'e' then
        ends = max(ends, end_of_details(details))
      end
      if ends > now then
        others = others .. letter .. packed .. pack('<I2', details and #details or 0) .. (details or '')
        others_end = max(others_end, ends)
      elseif is_kept(details) then
        forget_kept(place, letter)
      end
    end
  end
  slot = slot or absent()
  slot.lease, slot.others, slot.others_end = lease, others, others_end
  return without_old_details(slot, field)
end

-- Writes the string of a place: a slot of one letter, the lease and the other slots. `noted` is the new value of the
-- details: nil leaves them as they are, an empty text deletes them. The key expires with its last part.
local function save_value(place, field, slot)
  if slot.leftover then
    forget_kept(place, field)
    slot.leftover = false
  end
  local details, ends, value = slot.noted or slot.details or '', slot.ends, slot.others or ''
  if slot.others_end then
    ends = max(ends, slot.others_end)
  end
  if slot.ends > 0 or details ~= '' then
    local packed = field == 'e' and packed_event(slot) or packed_slot(slot)
    value = field .. packed .. pack('<I2', #details) .. details .. value
    -- Without a slot details stay for a while, even if the event is long overdue: a kept message is found by them.
    if field == 'e' and details ~= '' then
      ends = max(ends, end_of_details(details), slot.ends == 0 and now + backlog or 0)
    end
  end
  local leased = slot.lease and unpack_numbers('<I6', slot.lease, 17) or 0
  if leased > now then
    value, ends = '\1\1' .. slot.lease .. value, max(ends, leased)
  else
    value = '\1\0' .. value
  end
  if ends <= now then
    redis_call('DEL', base .. place)
  else
    redis_call('SET', base .. place, value, 'PXAT', expiry(ends))
  end
  slot.details = details ~= '' and details
end

-- Writes a dated slot and its details.
local function write_dated(place, field, slot)
  local key = dated_key(place)
  if slot.leftover then
    forget_kept(place, field)
    slot.leftover = false
  end
  local noted = slot.noted
  if noted and noted ~= '' then
    redis_call('HSET', key, field, packed_slot(slot), field .. '+', noted)
    slot.details = noted
    return
  end
  redis_call('HSET', key, field, packed_slot(slot))
  if noted then
    redis_call('HDEL', key, field .. '+')
    slot.details = false
  end
end

-- Removes an expired dated slot, its details and its kept message.
local function remove_dated(place, field)
  local key = dated_key(place)
  if is_kept(redis_call('HGET', key, field .. '+')) then
    forget_kept(place, field)
  end
  redis_call('HDEL', key, field, field .. '+')
end

-- Writes a slot and sets the expiry of its key, which expires with its last slot. Also removes expired slots.
local function save(place, field, slot)
  if not is_dated(field) then
    return save_value(place, field, slot)
  end
  write_dated(place, field, slot)
  local key, ends = dated_key(place), slot.ends
  local count = redis_call('HLEN', key)
  if count > (slot.details and 2 or 1) then
    local seen
    if count <= SMALL then
      seen = redis_call('HGETALL', key)
    else
      -- The latest expiry of so many slots is not known without reading all of them. It is not later than the key's
      -- present expiry.
      local looks = slot.is_new or not looked_at[place]
      looked_at[place] = true
      seen = looks and redis_call('HRANDFIELD', key, SAMPLE, 'WITHVALUES') or {}
      ends = max(ends, redis_call('PEXPIRETIME', key))
    end
    for i = 1, #seen, 2 do
      local name, packed = seen[i], seen[i + 1]
      if sub(name, -1) ~= '+' then
        local other = unpack_numbers('<I6', packed)
        if other > now then
          ends = max(ends, other)
        else
          remove_dated(place, name)
        end
      end
    end
    ends = min(ends, END_OF_TIME)
  end
  redis_call('PEXPIREAT', key, text(ends))
end

local function stale(slot, version, generation)
  return version < slot.version
    or (version == slot.version and (slot.finished or generation < slot.generation))
end

-- Whether a newer event waits, or, in slot `f`, the run that serves this version has begun.
local function replaced(slot, field, version)
  if field == 'f' then
    return version ~= slot.version and version <= slot.covered
  end
  return field ~= 'e' and version < slot.newest
end

local function is_at(slot, version, generation)
  return slot.version == version and not slot.finished and slot.generation == generation
end

-- mark = max(mark, (version, finished, generation)). A rise clears `begun`, `crashes` and `cancelled`.
local function raise(slot, version, finished, generation)
  local higher
  if version ~= slot.version then
    higher = version > slot.version
  elseif finished ~= slot.finished then
    higher = finished
  else
    higher = generation > slot.generation
  end
  if higher then
    slot.version, slot.finished, slot.generation = version, finished, generation
    slot.begun, slot.crashes, slot.cancelled = false, 0, false
  end
end

-- Whether some copy is still to run, as far as the slot knows.
local function open(slot)
  return not slot.finished or slot.newest > max(slot.version, slot.covered)
end

local function stay_open(slot)
  slot.ends = min(max(slot.due, now) + backlog, END_OF_TIME)
end

-- Sets when a slot expires. `due` is the due time of the delivery that the caller holds, nil if it holds none. Older
-- copies are about as late as that delivery, and no later than the backlog-retention. An overtaken copy may lie behind
-- the delivery in the queue, for an unknown time, so its slot stays as long as an open one.
local function keep(slot, dedup, due)
  if open(slot) or slot.cancelled or slot.overtaken or slot.due > now then
    stay_open(slot)
  elseif due then
    slot.ends = min(now + max(dedup, min(2 * (now - due), backlog)), END_OF_TIME)
  else
    slot.ends = min(max(slot.ends, now + dedup), END_OF_TIME)
  end
end

-- Unpacks a lease. Returns nil if it does not exist or has expired.
local function holder(packed)
  if not packed then
    return nil
  end
  local ends, version, generation, fence, crashes = unpack_numbers(LEASE, packed, 17)
  if ends <= now then
    return nil
  end
  return {
    token = sub(packed, 1, 16), field = sub(packed, LEASE_HEAD + 1),
    version = version, generation = generation, fence = fence, crashes = crashes,
  }
end

local function lease_of(lease, duration)
  return lease.token .. pack(LEASE, min(now + duration, END_OF_TIME), lease.version, lease.generation, lease.fence,
    lease.crashes, #lease.field) .. lease.field
end

-- A lease mostly lies in the key of its slot, and is read and written with it. These are for a lease in another key: of a
-- reference for a dated slot or for an event that does not compete, or of an event for a slot of a reference.
local function change_other_lease(place, lease)
  local slot = load(place, '')
  slot.lease = lease
  save_value(place, '', slot)
end

-- Whether a slot's key has the lease of this place.
local function has_lease(slot_place, field, place)
  return slot_place == place and not is_dated(field)
end

local function lease_at(slot, slot_place, field, place)
  if has_lease(slot_place, field, place) then
    return slot.lease
  end
  return load(place, '').lease
end

-- Takes the lease of a token out of a slot that is saved afterwards, or out of the other key. Returns whether the token
-- held it.
local function give_back(slot, slot_place, field, place, token)
  local packed = lease_at(slot, slot_place, field, place)
  if not packed or sub(packed, 1, 16) ~= token or unpack_numbers('<I6', packed, 17) <= now then
    return false
  end
  if has_lease(slot_place, field, place) then
    slot.lease = nil
  else
    change_other_lease(place, nil)
  end
  return true
end

-- The answers of a batch, in one list.
local answers, answered = {}, 0

local function reply(value)
  answered = answered + 1
  answers[answered] = value
end

-- Why items could not be answered, in their order.
local failures = {}

-- Answers a batch. Returns 2 if the counter existed before, 1 if it exists only now, and 0 if it does not exist: a caller that knew a
-- counter learns from 1 or 0 that Redis was emptied. Then follow the answers, the key of the index that could not be
-- used (if any), the owner's cluster name if the owner may be another broker, the failures, and Redis's time in us.
local function answer_all(answer)
  local done, failure = pcall(answer)
  -- Written even if an item failed: versions that the items before it were given must not be given again.
  if last > given then
    redis_call('SET', KEYS[1], value_of_counter())
  end
  if not done then
    -- An error of Redis is returned, because raising it again would lose the code that tells it from an error of the
    -- script.
    local said = type(failure) == 'table' and failure.err or failure
    return string.find(said, '^%u+ ') and { err = said } or error(said, 0)
  end
  return {
    given > 0 and 2 or (last > 0 and 1 or 0), answers, damage, is_used_by_another() and used_by.broker, failures,
    now_us,
  }
end

-- Answers every item of a batch. `answer` is called with the item, and replies.
local function each(answer)
  return answer_all(function()
    for at = 5, #ARGV do
      answer(ARGV[at])
    end
  end)
end

