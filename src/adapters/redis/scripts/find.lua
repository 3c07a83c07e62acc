-- find: keys index, one that never exists; arguments prefix of the homes' keys, first due time, due time before which
-- to stop (ms), the place to go on after (due time and member; empty: from the beginning), limit, and 1 for only those
-- events that compete with nothing. Answers the events (member, due, slot, details; the slot is empty if there is
-- none), the last place that was looked at (due time, member), and 1 if there may be more.
local index, base = KEYS[2], ARGV[4]
local from, before, after, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[9])
local alone = ARGV[10] == '1'

-- How many more members are read than looked at, if only events that compete with nothing are asked for. Passing over a
-- member by its name costs a small part of looking at its home.
local NAMES = 4

-- Whether one text comes after another in a sorted set. Lua's own `<` depends on the server's locale.
local function behind(one, other)
  for i = 1, min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

-- Returns how many members are due before that time.
local function earlier(due, included)
  return ask('ZCOUNT', index, '-inf', (included and '' or '(') .. text(due))
end

local rank = earlier(from, false)
if after then
  -- Very many members may be due at one time, so this is a binary search.
  local low, high = earlier(after, false), earlier(after, true)
  while low < high do
    local middle = floor((low + high) / 2)
    if behind(ask('ZRANGE', index, middle, middle)[1], ARGV[8]) then
      high = middle
    else
      low = middle + 1
    end
  end
  rank = max(rank, low)
end

-- Whether a member is in the home of one event. These members come before the references that are due at the same time.
local function is_alone(place)
  return string.sub(place, 1, 2) == 'i:'
end

local function looks_at(place)
  return not alone or is_alone(place)
end

-- Scores are read one by one: with its score a member costs Redis three times as much, and members that are passed over
-- need none.
local function due_of(place)
  return tonumber(ask('ZSCORE', index, place))
end

local stop = earlier(before, false)
local final = min(rank + (alone and limit * NAMES or limit), stop) - 1
local page = final < rank and {} or ask('ZRANGE', index, rank, final)
local found, gone, last_due, last_member = {}, {}, 0, ''
local more = final + 1 < stop

local function look_at(place, due)
  local name, field = string.match(place, '^(.*)%z([^%z]*)$')
  local home = name and base .. name
  local packed = home and ask('HMGET', home, field, field .. '+') or {}
  local slot, details = packed[1], packed[2]
  if slot and #slot < 6 then
    error({ err = 'WRONGTYPE a slot is too short (' .. home .. ')' }, 0)
  end
  local lives = slot and struct.unpack('<I6', slot) > now
  if details and (lives or outlasts(field, details)) then
    found[#found + 1] = { place, due, lives and slot or '', details }
  else
    gone[#gone + 1] = place
    if home then
      forget_kept(home, field)
    end
  end
end

local looks = 0
for _, place in ipairs(page) do
  if looks == limit then
    more = true
    break
  end
  last_member = place
  if looks_at(place) then
    looks = looks + 1
    look_at(place, due_of(place))
  end
end
if last_member ~= '' then
  last_due = due_of(last_member)
end
if more and not looks_at(last_member) then
  -- The next page begins after all references that are due then, of which there may be very many.
  last_member = 's'
end
if #gone > 0 then
  -- If nothing can be written, the next call passes over these members again.
  redis.pcall('ZREM', index, unpack(gone))
end
return { found, last_due, last_member, more and 1 or 0 }
