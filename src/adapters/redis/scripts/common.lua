-- Shared by all scripts, each of which answers a batch of calls about one shard. docs/register.md has the protocol, and
-- src/domain/register/transitions.rs has the same rules in Rust.
--
-- KEYS[1] is the shard's counter, ARGV[1] the backlog-retention in ms, ARGV[2] the time in us in tests and otherwise
-- empty, ARGV[3] the caller's cluster name, empty if it is not known. The items of the batch follow: the same number of
-- keys and of arguments for each item. For a script that touches more keys than the items name, the last key is one
-- that never exists. Each call has at least two keys, so that in a Cluster no node serves it while some keys of the
-- hash slot are on another node.
--
-- Lua's numbers are doubles. They are exact up to 2^53, and a version in us is below that. But tostring and .. keep
-- only 14 digits.

local max, min, floor = math.max, math.min, math.floor

local END_OF_TIME = 2 ^ 48 - 1 -- six bytes
local LAST_GENERATION = 2 ^ 32 - 1 -- four bytes
local MOST_CRASHES = 255 -- one byte

-- The form of a slot: until, due, since, mark.version, mark.generation, newest, crashes, flags; then `later` and
-- `covered` if their flags are set. It has at most 62 bytes. Above 64 Redis would give up the compact form of small
-- hashes.
local SLOT = '<I6I6I6I7I4I7BB'
local LATER = '<I6I7I4'
local COVERED = '<I7'
local FINISHED, BEGUN, HAS_LATER, HAS_COVERED, CANCELLED, OVERTAKEN = 1, 2, 4, 8, 16, 32

-- The form of a lease: the token's 16 bytes, then until, version, generation, fence, crashes, then the slot's field.
local LEASE = '<I6I7I4I7B'

-- Writing a slot also removes expired slots of its home. All fields of a home with up to SMALL fields are checked. Of a
-- larger home SAMPLE random fields are checked: whenever a slot is added, so that expired slots go faster than new ones
-- come, and otherwise once for each call. Sampling a home of thousands of fields takes longer than all other work for
-- one slot, and all slots of a batch may be in one home.
local SMALL, SAMPLE = 16, 8
local looked_at = {}

local backlog = tonumber(ARGV[1])
local now_us = tonumber(ARGV[2])
if not now_us then
  local time = redis.call('TIME')
  now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local now = floor(now_us / 1000)

-- The counter's value: the highest version given, the topology's name in the last `apply`, and the cluster name of the
-- broker, with `|` between them. A name that is not known is empty or left out. `own` writes the names, and `claim`
-- writes the broker's name if there is none.
local counter, used_by, broker = redis.call('GET', KEYS[1]) or '0', {}, ARGV[3]
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

-- Returns the home, the field and the version that count for a copy.
local function counted(home, own_home, field, version)
  if field == 'e' then
    return home, field, 0
  elseif was_given(version) then
    return home, field, version
  end
  return own_home, 'e', 0
end

-- Unpacks a slot. A slot that has expired or does not exist is all zero.
local function unpacked(packed)
  local slot = {
    ends = 0, due = 0, since = 0, version = 0, generation = 0, newest = 0, covered = 0, crashes = 0,
    finished = false, begun = false, cancelled = false, overtaken = false, later = 0,
  }
  if not packed or struct.unpack('<I6', packed) <= now then
    return slot
  end
  local flags, rest
  slot.ends, slot.due, slot.since, slot.version, slot.generation, slot.newest, slot.crashes, flags, rest =
    struct.unpack(SLOT, packed)
  slot.finished = bit.band(flags, FINISHED) ~= 0
  slot.begun = bit.band(flags, BEGUN) ~= 0
  slot.cancelled = bit.band(flags, CANCELLED) ~= 0
  slot.overtaken = bit.band(flags, OVERTAKEN) ~= 0
  if bit.band(flags, HAS_LATER) ~= 0 then
    slot.later, slot.later_version, slot.later_generation, rest = struct.unpack(LATER, packed, rest)
  end
  if bit.band(flags, HAS_COVERED) ~= 0 then
    slot.covered = struct.unpack(COVERED, packed, rest)
  end
  return slot
end

-- Returns the key of the hash with the messages that are kept of a home's events, by the home's fields:
-- <type>:p:<kind>:<name>. Only `kept` is given this key: few types keep messages, so the other calls build it here. It
-- begins like all keys of the shard, with the hash tag.
local BASE = #KEYS[1] - #'last'

local function kept_key(home)
  local event_type, name = string.match(home, '^([^:]*:)(.*)$', BASE + 1)
  return string.sub(home, 1, BASE) .. event_type .. 'p:' .. name
end

-- The index's details of a slot are in the field beside it, whose name is the slot's and a `+`. They begin with the due
-- time. They last as long as the slot. An event without coalescing has no slot until it is claimed: then its details
-- last as long as an open slot would. Details shorter than the due time and the flags are foreign, and count as none.
local LEAST = 7

local function outlasts(field, details)
  return field == 'e' and #details >= LEAST and struct.unpack('<I6', details) + backlog > now
end

local HAS_KEPT = 64

local function is_kept(details)
  return details and #details >= LEAST and bit.band(string.byte(details, 7), HAS_KEPT) ~= 0
end

-- Deletes a kept message. An error is ignored (the hash slot may be moving to another node), because the key expires by
-- itself.
local function forget_kept(home, field)
  redis.pcall('HDEL', kept_key(home), field)
end

-- Reads a slot and its details. `leftover` means that the details have expired and their message is still kept.
local function load(home, field)
  local packed = redis.call('HMGET', home, field, field .. '+')
  local slot = unpacked(packed[1])
  slot.details, slot.is_new = packed[2], not packed[1]
  if slot.details and (#slot.details < LEAST or slot.ends == 0 and not outlasts(field, slot.details)) then
    slot.leftover = is_kept(slot.details)
    slot.details, slot.noted = false, ''
  end
  return slot
end

-- Writes a slot. `noted` is the new value of its details: nil leaves them as they are, an empty text deletes them.
local function write(home, field, slot)
  if slot.leftover then
    forget_kept(home, field)
    slot.leftover = false
  end
  local flags = (slot.finished and FINISHED or 0) + (slot.begun and BEGUN or 0) + (slot.cancelled and CANCELLED or 0)
    + (slot.overtaken and OVERTAKEN or 0)
  local more = ''
  if slot.later > 0 then
    flags = flags + HAS_LATER
    more = struct.pack(LATER, slot.later, slot.later_version, slot.later_generation)
  end
  if slot.covered > 0 then
    flags = flags + HAS_COVERED
    more = more .. struct.pack(COVERED, slot.covered)
  end
  local packed = struct.pack(SLOT, slot.ends, slot.due, slot.since, slot.version, slot.generation, slot.newest,
    slot.crashes, flags) .. more
  if slot.noted and slot.noted ~= '' then
    redis.call('HSET', home, field, packed, field .. '+', slot.noted)
    slot.details = slot.noted
    return
  end
  redis.call('HSET', home, field, packed)
  if slot.noted then
    redis.call('HDEL', home, field .. '+')
    slot.details = false
  end
end

-- Removes an expired slot, its details and its kept message.
local function remove(home, field)
  if is_kept(redis.call('HGET', home, field .. '+')) then
    forget_kept(home, field)
  end
  redis.call('HDEL', home, field, field .. '+')
end

-- Writes a slot and sets the expiry of its home, which expires with its last slot. Also removes expired slots.
local function save(home, field, slot)
  write(home, field, slot)
  local ends = slot.ends
  local count = redis.call('HLEN', home)
  if count > (slot.details and 2 or 1) then
    local seen
    if count <= SMALL then
      seen = redis.call('HGETALL', home)
    else
      -- The latest expiry of so many slots is not known without reading all of them. It is not later than the home's
      -- present expiry.
      local looks = slot.is_new or not looked_at[home]
      looked_at[home] = true
      seen = looks and redis.call('HRANDFIELD', home, SAMPLE, 'WITHVALUES') or {}
      ends = max(ends, redis.call('PEXPIRETIME', home))
    end
    for i = 1, #seen, 2 do
      local name, packed = seen[i], seen[i + 1]
      if name == 'e+' then
        ends = max(ends, #packed >= LEAST and struct.unpack('<I6', packed) + backlog or 0)
      elseif string.sub(name, -1) ~= '+' then
        local other = struct.unpack('<I6', packed)
        if other > now then
          ends = max(ends, other)
        elseif name == 'e' then
          redis.call('HDEL', home, name)
        else
          remove(home, name)
        end
      end
    end
    ends = min(ends, END_OF_TIME)
  end
  redis.call('PEXPIREAT', home, text(ends))
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

-- Returns a lease, nil if nobody holds it.
local function holder(key)
  local packed = redis.call('GET', key)
  if not packed then
    return nil
  end
  local lease, rest = { token = string.sub(packed, 1, 16) }, nil
  lease.ends, lease.version, lease.generation, lease.fence, lease.crashes, rest = struct.unpack(LEASE, packed, 17)
  if lease.ends <= now then
    return nil
  end
  lease.field = string.sub(packed, rest)
  return lease
end

local function hold(key, lease, duration)
  lease.ends = min(now + duration, END_OF_TIME)
  local packed = struct.pack(LEASE, lease.ends, lease.version, lease.generation, lease.fence, lease.crashes)
  redis.call('SET', key, lease.token .. packed .. lease.field, 'PXAT', text(lease.ends))
end

-- Gives a lease back if this token holds it. Returns whether it did.
local function give_back(key, token)
  local lease = holder(key)
  if not lease or lease.token ~= token then
    return false
  end
  redis.call('DEL', key)
  return true
end

-- Answers every item of the batch. `answer` is called with the places at which the item's keys and arguments begin.
-- Returns 2 if the counter existed before, 1 if it exists only now, and 0 if it does not exist: a caller that knew a
-- counter learns from 1 or 0 that Redis was emptied. Then follow the answers, the key of the index that could not be
-- used (if any), and the owner's cluster name if the owner may be another broker.
local function each(keys, arguments, answer)
  local answers = {}
  local done, failure = pcall(function()
    for i = 0, (#KEYS - 1) / keys - 1 do
      answers[i + 1] = answer(2 + keys * i, 4 + arguments * i)
    end
  end)
  -- Written even if an item failed: versions that the items before it were given must not be given again.
  if last > given then
    redis.call('SET', KEYS[1], value_of_counter())
  end
  if not done then
    -- An error of Redis is returned, because raising it again would lose the code that tells it from an error of the
    -- script.
    local said = type(failure) == 'table' and failure.err or failure
    return string.find(said, '^%u+ ') and { err = said } or error(said, 0)
  end
  return { given > 0 and 2 or (last > 0 and 1 or 0), answers, damage, is_used_by_another() and used_by.broker }
end

