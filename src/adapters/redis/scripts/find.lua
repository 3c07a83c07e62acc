-- find: type, first due time, due time before which to stop (ms), the place to go on after (due time and member; empty:
-- from the beginning), limit, and 1 for only those events that compete with nothing. Answers the events (member, due,
-- slot, details; the slot is empty if there is none), the last place that was looked at (due time, member), and 1 if
-- there may be more.
local event_type = ARGV[5]
local index = base .. event_type .. ':x'
local from, before, after, limit = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[10])
local uncontested = ARGV[11] == '1'

-- How many times as many members are read as are looked at, if only events that compete with nothing are asked for. Passing over a
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
    if behind(ask('ZRANGE', index, middle, middle)[1], ARGV[9]) then
      high = middle
    else
      low = middle + 1
    end
  end
  rank = max(rank, low)
end

-- Whether a member is an event that competes with nothing. These members come before the references that are due at the same time.
local function is_uncontested(place)
  return sub(place, 1, 2) == 'i:'
end

local function looks_at(place)
  return not uncontested or is_uncontested(place)
end

-- Scores are read one by one: with its score a member costs Redis three times as much, and members that are passed over
-- need none.
local function due_of(place)
  return tonumber(ask('ZSCORE', index, place))
end

local stop = earlier(before, false)
local final = min(rank + (uncontested and limit * NAMES or limit), stop) - 1
local page = final < rank and {} or ask('ZRANGE', index, rank, final)
local found, gone, last_due, last_member = {}, {}, 0, ''
local more = final + 1 < stop

local function look_at(member, due)
  local name, field = string.match(member, '^(.*)%z([^%z]*)$')
  local place, slot, details = name and event_type .. ':' .. name, nil, nil
  if place and is_dated(field) then
    local found_there = ask('HMGET', dated_key(place), field, field .. '+')
    slot, details = found_there[1], found_there[2]
  elseif place then
    local value = ask('GET', base .. place)
    local _, list = parts(place, value or '\1\0')
    for i = 1, #list, 3 do
      if list[i] == field then
        slot, details = list[i + 1], list[i + 2]
      end
    end
  end
  if slot and #slot < 6 then
    error({ err = 'WRONGTYPE a slot is too short (' .. base .. place .. ')' }, 0)
  end
  local lives = slot and unpack_numbers('<I6', slot) > now
  if details and (lives or outlasts(field, details)) then
    found[#found + 1] = { member, due, lives and slot or '', details }
  else
    gone[#gone + 1] = member
    if place then
      forget_kept(place, field)
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
