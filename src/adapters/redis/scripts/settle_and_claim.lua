-- settle_and_claim: settles, and then claims. ARGV[5] is the number of settlements, whose items follow (settle.lua), and
-- then those of the claims (claim.lua). Answers the values of each item. The answer to an item whose key cannot be read is
-- UNREADABLE, and the reasons are returned by themselves.
local UNREADABLE = -1

local first_claim = 6 + tonumber(ARGV[5])

-- A worker that claims has found its topology on its broker. So it may restore the owner of an emptied register, before
-- the next `apply` does.
if first_claim <= #ARGV and used_by.broker == '' then
  used_by.broker = broker
end

-- Answers the items from one place to another. An error of Redis other than WRONGTYPE concerns the whole call.
local function each_by_itself(at, last, values, answer)
  local function go_on()
    while at <= last do
      answer(ARGV[at])
      at = at + 1
    end
  end
  while at <= last do
    local done, failure = pcall(go_on)
    if not done then
      local said = type(failure) == 'table' and failure.err or failure
      local code = string.match(said, '^%u+ ')
      if code and code ~= 'WRONGTYPE ' then
        error(failure, 0)
      end
      failures[#failures + 1] = said
      for _ = 1, values do
        reply(UNREADABLE)
      end
      at = at + 1
    end
  end
end

return answer_all(function()
  each_by_itself(6, first_claim - 1, 1, settle)
  each_by_itself(first_claim, #ARGV, 2, claim)
end)
