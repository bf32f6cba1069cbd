-- Sees that nothing older than a version is given out or stored. ARGV: the key, the version or zero for everything
-- older than now, who asks, a random number for this invalidation, how many floors there may be.
-- Returns generation, number, nonce, the nonce before, and the members to wait for.

local KEY, VERSION, BY, NONCE, MOST = ARGV[6], ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10])

if call('HLEN', FLOORS) - 1 + former >= MOST then
  begin() -- so many floors that some must be forgotten: nothing that is here can be trusted any more
end
local place = { generation, whole(number + 1), NONCE, nonce }
call('PUBLISH', FEED, FORMAT .. ' i ' .. table.concat(place, ' ') .. ' ' .. VERSION .. ' ' .. BY .. '\n' .. KEY)

-- One without a version makes none with a version weaker, nor the other way round.
local floor, unnamed = floored(KEY)
if below(floor, VERSION) then
  floor = VERSION
end
if unnamed or VERSION == NONE then
  floor = floor .. 'u'
end
local item = stored()
if item and (VERSION == NONE or below(item.version, VERSION)) then
  call('UNLINK', ITEM)
end
local load = loading()
if load and (load.why or VERSION == NONE or below(load.min, VERSION)) then
  call('DEL', LOAD)
end
number, nonce = number + 1, NONCE
call('HSET', FLOORS, HEADER, header(), KEY, floor)

local members = call('ZRANGEBYSCORE', MEMBERS, '(' .. whole(now), '+inf')
if members[#members] ~= '' then -- the server evicted the list, or has lost everything
  doubt()
  members[#members + 1] = '?'
end
for _, member in ipairs(members) do
  if member ~= BY and member ~= '' then
    place[#place + 1] = member
  end
end
return place
