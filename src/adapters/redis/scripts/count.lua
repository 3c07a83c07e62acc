-- count: types. Answers three numbers for each: the events that are due, those that are not, and the due time of the next
-- of these (ms; -1 if there is none).
local counts = {}
for i = 5, #ARGV do
  local index = base .. ARGV[i] .. ':x'
  local due, all = ask('ZCOUNT', index, '-inf', text(now)), ask('ZCOUNT', index, '-inf', '+inf')
  local following = all > due and ask('ZRANGE', index, due, due)[1]
  counts[#counts + 1] = due
  counts[#counts + 1] = all - due
  counts[#counts + 1] = following and tonumber(ask('ZSCORE', index, following)) or -1
end
return counts
