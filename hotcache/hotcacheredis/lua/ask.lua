-- Answers a read. ARGV: the key, the least version, the name of the lease, how long one lasts in milliseconds.
-- Returns state, header, record or nil, now; what the load must ask for and the floor; milliseconds to wait; why.

local KEY, MIN, TOKEN, LEASE = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local item = call('GET', ITEM)
item = item and record(item)
if item and (MIN == NEWEST or below(item.version, MIN)) then
  item = nil
end
local good = item and item.hard > now
local load = loading()

local function answer(state, ask, floor, retry, why)
  return { state, header(), item and item.text or false, whole(now), ask or NONE, floor or NONE, retry or 0, why or '' }
end

if good and (item.soft > now or load or TOKEN == NONE) then
  return answer('h')
end
if not good and TOKEN == NONE then
  return answer('m')
end
if not good and load then
  if load.why then
    return answer('f', nil, nil, call('PTTL', LOAD), load.why)
  end
  if not load.waiters then
    call('SET', LOAD, lease(load.token, load.min, '1'), 'KEEPTTL')
  end
  return answer('b', nil, nil, call('PTTL', LOAD))
end

local floor, unnamed = floored(KEY)
local ask = MIN
if MIN == NEWEST or now - born < ttl or unnamed then
  ask = NEWEST -- what was invalidated before this generation is not known, or only the primary is surely not older
elseif below(MIN, floor) then
  ask = floor
end
call('SET', LOAD, lease(TOKEN, ask, '0'), 'PX', LEASE)
return answer(good and 'h' or 'l', ask, floor)
