-- Ends a lease whose load failed. ARGV: the key, the name of the lease, why, milliseconds in which nobody is to load.

local load = loading()
if not load or load.token ~= ARGV[7] then
  return 0
end
wake(load, ARGV[6])
if tonumber(ARGV[9]) > 0 then
  call('SET', LOAD, 'f ' .. generation .. ' ' .. ARGV[8], 'PX', ARGV[9])
else
  call('DEL', LOAD)
end
return 1
