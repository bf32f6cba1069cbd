-- Makes a lease last longer. ARGV: its name, for how many milliseconds. Returns whether it still holds.

local load = loading()
if not load or load.token ~= ARGV[6] then
  return 0
end
return call('PEXPIRE', LOAD, ARGV[7])
