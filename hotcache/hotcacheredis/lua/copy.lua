-- Stores a copy, of which another node is the home, in the place of an item. ARGV: the home's generation and number,
-- version, whether there is no such row, three times, data.

local GENERATION, NUMBER, DATA = ARGV[6], ARGV[7], ARGV[13]
local SOFT, HARD, KEEP = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])

local old = call('GETRANGE', ITEM, 0, 105)
if sub(old, 3, 18) == GENERATION and below(NUMBER, sub(old, 20, 35)) then
  return 0
end
store(GENERATION .. ' ' .. NUMBER, ARGV[8], ARGV[9], SOFT, HARD, KEEP, DATA, HARD)
return 1
