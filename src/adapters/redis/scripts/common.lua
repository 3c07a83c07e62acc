-- What the scripts share; the protocol is docs/register.md, and src/domain/register/transitions.rs says the same
-- in Rust. A script answers a batch about one shard.
--
-- KEYS[1] is the shard's counter, ARGV[1] the backlog-retention in ms, ARGV[2] the time in us where a test says it and
-- otherwise empty, ARGV[3] the caller's cluster name, empty where it is not known. Then come the items, so many keys and arguments each (two keys at least), and for a script that touches more
-- keys than these one that is never there: in a Cluster no node serves the call while some keys of the hash slot are elsewhere.
--
-- Lua counts in doubles: whole up to 2^53, and a version in us is below that. But tostring and .. keep 14 digits only.

local max, min, floor = math.max, math.min, math.floor

local END_OF_TIME = 2 ^ 48 - 1 -- six bytes
local LAST_GENERATION = 2 ^ 32 - 1 -- four bytes
local MOST_CRASHES = 255 -- one byte

-- until, due, since, mark.version, mark.generation, newest, crashes, flags; then `later` and `covered` where a flag says
-- so. At most 64 bytes in all (it is 62), or Redis gives up the compact form of small hashes.
local SLOT = '<I6I6I6I7I4I7BB'
local LATER = '<I6I7I4'
local COVERED = '<I7'
local FINISHED, BEGUN, HAS_LATER, HAS_COVERED, CANCELLED, OVERTAKEN = 1, 2, 4, 8, 16, 32

-- The token's 16 bytes, then until, version, generation, fence, crashes, then the slot's field.
local LEASE = '<I6I7I4I7B'

-- A home of up to so many fields is looked at whole whenever a slot of it is written, of a larger one a few at random: whenever a
-- slot is added, so that what is past its time goes faster than it comes, and else once in a call. Looking at a few of thousands of
-- fields takes longer than all else that is done for one slot, and a batch may be about slots of one home alone.
local SMALL, SAMPLE = 16, 8
local looked_at = {}

local backlog = tonumber(ARGV[1])
local now_us = tonumber(ARGV[2])
if not now_us then
  local time = redis.call('TIME')
  now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local now = floor(now_us / 1000)

-- The counter's value: the highest version given, the topology's name as the last `apply` had it, and the cluster name of the
-- broker, with `|` between them. The names are empty, or left out, where they are not known. `own` writes them, and `claim` writes
-- the broker's where there is none.
local counter, used_by, broker = redis.call('GET', KEYS[1]) or '0', {}, ARGV[3]
local given
given, used_by.topology, used_by.broker = string.match(counter, '^([^|]*)|?([^|]*)|?(.*)$')
given = tonumber(given)
local last = given

local function is_used_by_another()
  return broker ~= '' and used_by.broker ~= '' and broker ~= used_by.broker
end

-- A cluster that somebody has named says that name on all its nodes. Until then RabbitMQ says a node's name (`rabbit@host`), which is
-- another one on each node, so an owner with such a name may be this broker.
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

-- What is about the index or the kept messages alone fails no call, for nothing is decided from it: where Redis refuses it (its key
-- holds what somebody else wrote) nothing is answered, and `damage` goes with the answers for somebody to hear of it.
local damage = false

local function try(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    damage = damage or key .. ': ' .. reply.err
    return nil
  end
  return reply
end

-- People who ask are told which key it is.
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

-- What reserve cannot have given counts as absent.
local function was_given(version)
  return version >= 1 and version <= max(last, now_us)
end

-- The home, field and version that a copy counts with.
local function counted(home, own_home, field, version)
  if field == 'e' then
    return home, field, 0
  elseif was_given(version) then
    return home, field, version
  end
  return own_home, 'e', 0
end

-- A slot from its packed form; one that is past its time, or not there, is all zero.
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

-- The messages that are kept of the events in a home, by its fields: <type>:p:<kind>:<name>. Its name is put together here, for
-- few types have any; it begins with what all keys of the shard begin with, the hash tag included.
local BASE = #KEYS[1] - #'last'

local function kept_key(home)
  local event_type, name = string.match(home, '^([^:]*:)(.*)$', BASE + 1)
  return string.sub(home, 1, BASE) .. event_type .. 'p:' .. name
end

-- What the index says of a slot stands beside it, in the field with a `+` behind the slot's: its due time first. It lasts as
-- long as the slot; for an event without coalescing there is no slot until it is claimed, and it lasts as one that is open
-- would. Less than its time and flags was written by somebody else, and says nothing.
local LEAST = 7

local function outlasts(field, details)
  return field == 'e' and #details >= LEAST and struct.unpack('<I6', details) + backlog > now
end

local HAS_KEPT = 64

local function is_kept(details)
  return details and #details >= LEAST and bit.band(string.byte(details, 7), HAS_KEPT) ~= 0
end

-- What is past its time is not worth a call that fails (a hash slot may be on its way to another node): it expires by itself.
local function forget_kept(home, field)
  redis.pcall('HDEL', kept_key(home), field)
end

-- `leftover` says that the message is still kept of what is past its time.
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

-- `noted` is what the index says of it from now on: nil for the same as before, empty for nothing any more.
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

-- A slot past its time goes, and with it what the index says of it, and its message.
local function remove(home, field)
  if is_kept(redis.call('HGET', home, field .. '+')) then
    forget_kept(home, field)
  end
  redis.call('HDEL', home, field, field .. '+')
end

-- Writes a slot. The home expires with its last slot; slots past their time are removed in passing.
local function save(home, field, slot)
  write(home, field, slot)
  local ends = slot.ends
  local count = redis.call('HLEN', home)
  if count > (slot.details and 2 or 1) then
    local seen
    if count <= SMALL then
      seen = redis.call('HGETALL', home)
    else
      -- The highest of so many is not known without reading them all, only that it is not above the present one.
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

-- A newer one waits, or the run that serves it has begun.
local function replaced(slot, field, version)
  if field == 'f' then
    return version ~= slot.version and version <= slot.covered
  end
  return field ~= 'e' and version < slot.newest
end

local function is_at(slot, version, generation)
  return slot.version == version and not slot.finished and slot.generation == generation
end

-- mark = max(mark, (version, finished, generation)). A rise begins anew.
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

-- Whether some copy is still to run as far as is known.
local function open(slot)
  return not slot.finished or slot.newest > max(slot.version, slot.covered)
end

local function stay_open(slot)
  slot.ends = min(max(slot.due, now) + backlog, END_OF_TIME)
end

-- Sets how long a slot lives. `due` is when the delivery in the caller's hand was due, nil where it holds none: older copies
-- lie about as far back, and no further than anything open is remembered. A copy that was overtaken lies behind the delivery
-- instead, and nobody knows for how long.
local function keep(slot, dedup, due)
  if open(slot) or slot.cancelled or slot.overtaken or slot.due > now then
    stay_open(slot)
  elseif due then
    slot.ends = min(now + max(dedup, min(2 * (now - due), backlog)), END_OF_TIME)
  else
    slot.ends = min(max(slot.ends, now + dedup), END_OF_TIME)
  end
end

-- Who holds a lease, nil where nobody does.
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

-- Gives a lease back if the token holds it, and says whether it did.
local function give_back(key, token)
  local lease = holder(key)
  if not lease or lease.token ~= token then
    return false
  end
  redis.call('DEL', key)
  return true
end

-- Answers every item of the batch: `answer` is told where its keys and arguments begin. Before the answers it says whether
-- there was a counter: 2, or 1 where there is one now, or 0. Whoever knew of one was robbed of it. Behind them it says which key
-- of the index could not be used, if any, and the owner's name where that may be another broker.
local function each(keys, arguments, answer)
  local answers = {}
  local done, failure = pcall(function()
    for i = 0, (#KEYS - 1) / keys - 1 do
      answers[i + 1] = answer(2 + keys * i, 4 + arguments * i)
    end
  end)
  -- Also where a key cannot be read: what was given to those before it is not given again.
  if last > given then
    redis.call('SET', KEYS[1], value_of_counter())
  end
  if not done then
    -- Where it is raised again, what Redis has answered loses the word by which it is told from an error of the script.
    local said = type(failure) == 'table' and failure.err or failure
    return string.find(said, '^%u+ ') and { err = said } or error(said, 0)
  end
  return { given > 0 and 2 or (last > 0 and 1 or 0), answers, damage, is_used_by_another() and used_by.broker }
end

