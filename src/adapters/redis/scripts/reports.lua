-- What workers and publishers tell `topology status`. Arguments: `ran`, and for each type its name, how many runs ended, how many
-- of them failed, and why the last one failed; `loss`, the birth that the caller knows (empty if it knows none), and 1 if it has
-- found keys gone since its last call; `read`, the number of slices; `wrong_clock`, the report of a wrong clock and the ms for which
-- it is kept; `clock`.
-- Answers nothing to `ran` and `wrong_clock`. To `clock` the report, if there is one. To `loss` the birth of the data and when they were lost last (empty if that was not within a day), in
-- ms. To `read` when they were lost, and for each slice, the newest first, its age in seconds, and the names and values of its
-- fields, with an empty text at its end.
local SLICE, SLICES_LAST, DAY, A_WHILE = 10000, 2400000, 86400000, 60000
-- Refreshed at each look.
local BIRTH_LASTS = 30 * DAY

local function slice_key(slice)
  return base .. 'runs:' .. text(slice)
end

-- Adds with the commands that the users of Redis have for the other scripts.
local function add(key, field, count)
  redis_call('HSET', key, field, text((tonumber(redis_call('HGET', key, field)) or 0) + tonumber(count)))
end

local function ran()
  local key = slice_key(floor(now / SLICE))
  for at = 6, #ARGV, 4 do
    local event_type = ARGV[at]
    add(key, event_type .. ':n', ARGV[at + 1])
    add(key, event_type .. ':f', ARGV[at + 2])
    if ARGV[at + 3] ~= '' then
      redis_call('HSET', key, event_type .. ':e', ARGV[at + 3])
    end
  end
  redis_call('PEXPIREAT', key, text(now + SLICES_LAST))
end

local function loss(known, has_found)
  local born, lost = redis_call('GET', base .. 'born'), redis_call('GET', base .. 'emptied')
  local is_new, at = known ~= '' and born ~= known, now
  if is_new and born then
    -- Somebody who knew nothing of the data before was faster.
    at = tonumber(born) or now
  end
  local is_told = lost and (not has_found or tonumber(lost) > now - A_WHILE)
  if (is_new or has_found) and not is_told and at + DAY > now then
    lost = text(at)
    redis_call('SET', base .. 'emptied', lost, 'PX', text(at + DAY - now))
  end
  born = born or text(now)
  redis_call('SET', base .. 'born', born, 'PX', text(BIRTH_LASTS))
  reply(born)
  reply(lost or '')
end

local function read(slices)
  reply(redis_call('GET', base .. 'emptied') or '')
  for age = 0, slices - 1 do
    local fields = redis_call('HGETALL', slice_key(floor(now / SLICE) - age))
    if #fields > 0 then
      reply(text(age * SLICE / 1000))
      for _, value in ipairs(fields) do
        reply(value)
      end
      reply('')
    end
  end
end

return answer_all(function()
  local act = ARGV[5]
  if act == 'ran' then
    ran()
  elseif act == 'loss' then
    loss(ARGV[6], ARGV[7] == '1')
  elseif act == 'wrong_clock' then
    redis_call('SET', base .. 'clock', ARGV[6], 'PX', ARGV[7])
  elseif act == 'clock' then
    local report = redis_call('GET', base .. 'clock')
    if report then
      reply(report)
    end
  else
    read(tonumber(ARGV[6]))
  end
end)
