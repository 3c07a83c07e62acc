-- find: keys index, and one that is never there; arguments what the homes' names begin with, from when and before when (ms), the
-- place to go on behind (due and member, empty: from the beginning), and how many at most. Answers what it found (member, due,
-- slot, details; an empty slot is none), the last place that it came to, and 1 where there may be more.
local index, base = KEYS[2], ARGV[4]
local from, before, after, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[9])

-- Whether one text stands behind another in a sorted set. Lua's own `<` goes by the server's language.
local function behind(one, other)
  for i = 1, min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

-- How many members come before that time.
local function earlier(due, included)
  return ask('ZCOUNT', index, '-inf', (included and '' or '(') .. text(due))
end

local rank = earlier(from, false)
if after then
  -- Very many may be due at one time, so what stands behind the member is not looked for one by one.
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

local page = ask('ZRANGE', index, rank, rank + limit - 1, 'WITHSCORES')
local found, gone, last_due, last_member = {}, {}, 0, ''
local more = #page == 2 * limit
for i = 1, #page, 2 do
  local place, due = page[i], tonumber(page[i + 1])
  if due >= before then
    more = false
    break
  end
  last_due, last_member = due, place
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
if #gone > 0 then
  -- Where nothing can be written they are passed over again by the next one.
  redis.pcall('ZREM', index, unpack(gone))
end
return { found, last_due, last_member, more and 1 or 0 }
