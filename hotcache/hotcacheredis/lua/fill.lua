-- Stores what was loaded under a lease. ARGV: the key, the name of the lease, version, whether there is no such row,
-- three times, data. Returns whether it was stored, header, floor.

local KEY, TOKEN, VERSION, ABSENT, DATA = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[13]
local SOFT, HARD, KEEP = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])

local floor = floored(KEY)
local load = loading()
if not load or load.token ~= TOKEN then
  return { 'l', header(), floor }
end
wake(load, KEY)
call('DEL', LOAD)
if below(VERSION, floor) then
  return { 'o', header(), floor }
end
local there = stored()
if there and below(VERSION, there.version) then
  return { 'o', header(), below(there.version, floor) and floor or there.version }
end
store(generation .. ' ' .. string.format('%016x', number), VERSION, ABSENT, SOFT, HARD, KEEP, DATA, KEEP)
return { 's', header(), floor }
