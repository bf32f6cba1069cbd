-- In front of every script. It alone knows how a cache is laid out in Redis; layout.go has the other half. It finds the
-- generation, or begins one, and turns the halves of the floors; the body behind it does what its name says, as
-- core.Home does, and sends what may be forbidden before it changes anything.
--
-- KEYS: floors, former, members, then for most the item and what is known of its load. ARGV: the format, the channel,
-- a random number for a generation, for how long floors are to be known, for how long members trust their memory, and
-- from the sixth on what the body wants. Times are in microseconds of Unix time, durations in microseconds. Versions,
-- tokens and the like are 16 hexadecimal digits: a number of Lua cannot hold them.

local FLOORS, FORMER, MEMBERS, ITEM, LOAD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FORMAT, FEED, RANDOM, TTL, TRUST = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local HEADER, NONE, NEWEST = '', '0000000000000000', 'ffffffffffffffff'
local GRAVE = 86400000 -- milliseconds after which a cache that nobody uses is gone
local call, sub = redis.call, string.sub

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(n)
  return string.format('%.0f', n)
end

local function below(a, b)
  local x, y = tonumber(sub(a, 1, 8), 16), tonumber(sub(b, 1, 8), 16)
  if x ~= y then
    return x < y
  end
  return tonumber(sub(a, 9), 16) < tonumber(sub(b, 9), 16)
end

local format, generation, number, nonce, born, since, former, ttl, life

local function header()
  return table.concat({ FORMAT, generation, whole(number), nonce, whole(born), whole(since), whole(former), whole(ttl), life }, ' ')
end

local function save()
  call('HSET', FLOORS, HEADER, header())
  local grave = whole(math.max(GRAVE, ttl / 250))
  for _, key in ipairs({ FLOORS, FORMER, MEMBERS }) do
    call('PEXPIRE', key, grave)
  end
end

-- The life of the server: what it holds may have been set back when this differs from what it holds.
local function living()
  local run = string.match(call('INFO', 'server'), 'run_id:(%x+)')
  local role = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  return sub(run or '?', 1, 16) .. '.' .. sub(role or '?', 1, 16)
end

-- A generation begins: all that was stored in another one counts as gone.
local function begin()
  life = living()
  call('UNLINK', FLOORS, FORMER)
  generation, number, nonce, born, since, former, ttl = RANDOM, 0, RANDOM, now, now, 0, math.max(TTL, ttl or 0)
  save()
end

local function fail(code)
  error({ err = 'CACHE' .. code .. ' cannot go on' })
end

-- Drops the older half of the floors when its time is over.
local function turn()
  if TTL > ttl then -- somebody needs floors for longer than they were kept: some may be missing
    ttl, born = TTL, now
    save()
  end
  local age = now - since
  if age < ttl then
    return
  end
  call('UNLINK', FORMER)
  former, since = 0, now
  if age >= 2 * ttl then
    call('UNLINK', FLOORS)
  else
    call('HDEL', FLOORS, HEADER)
    former = call('HLEN', FLOORS)
    if former > 0 then
      call('RENAME', FLOORS, FORMER)
    end
  end
  save()
end

local text = call('HGET', FLOORS, HEADER)
if text then
  format, generation, number, nonce, born, since, former, ttl, life =
    string.match(text, '^(%d+) (%x+) (%d+) (%x+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
  format = format or string.match(text, '^(%d+) ')
  if format and tonumber(format) > tonumber(FORMAT) then
    fail('FORMAT')
  elseif not generation then
    fail('FOREIGN')
  end
  number, born, since, former, ttl = tonumber(number), tonumber(born), tonumber(since), tonumber(former), tonumber(ttl)
  if former > 0 and call('HLEN', FORMER) ~= former then
    begin() -- the server evicted a half
  else
    turn()
  end
elseif call('EXISTS', FLOORS) == 1 then
  fail('FOREIGN')
else
  begin()
end

-- The floor of a key: the highest version that was named, and whether there was an invalidation without one.
local function floored(key)
  local text = call('HGET', FLOORS, key) or former > 0 and call('HGET', FORMER, key)
  if not text then
    return NONE, false
  end
  return sub(text, 1, 16), #text > 16
end

-- What an item is known by, or nil. The text is that of a record, or as much of it as is before the data.
local function record(text)
  if sub(text, 3, 18) ~= generation then
    return nil
  end
  local keep = tonumber(sub(text, 90, 105))
  if keep <= now then
    return nil
  end
  return { text = text, version = sub(text, 37, 52), soft = tonumber(sub(text, 56, 71)), hard = tonumber(sub(text, 73, 88)) }
end

local function stored()
  return record(call('GETRANGE', ITEM, 0, 105))
end

-- Writes a record for a time in which it is good for something.
local function store(stamp, version, absent, soft, hard, keep, data, time)
  if time <= 0 then
    call('UNLINK', ITEM)
    return
  end
  local words = string.format(' %s %s %s %016.0f %016.0f %016.0f ', stamp, version, absent, now + soft, now + hard, now + keep)
  call('SET', ITEM, FORMAT .. words .. data, 'PX', whole(math.ceil(time / 1000)))
end

-- Who loads the key, or why the last load failed, or nil. There is never both: whoever fails has given up his lease.
local function loading()
  local text = call('GET', LOAD)
  if not text or sub(text, 3, 18) ~= generation then
    return nil
  end
  if sub(text, 1, 1) == 'f' then
    return { why = sub(text, 20) }
  end
  return { token = sub(text, 20, 35), min = sub(text, 37, 52), waiters = sub(text, 54, 54) == '1' }
end

local function lease(token, min, waiters)
  return table.concat({ 'l', generation, token, min, waiters }, ' ')
end

local function wake(load, key)
  if load.waiters then
    call('PUBLISH', FEED, FORMAT .. ' w\n' .. key)
  end
end

-- Names somebody who will never say that he heard, for as long as members may trust their memory: some were forgotten.
local function doubt()
  call('ZADD', MEMBERS, 'inf', '', whole(now + TRUST), '?')
  call('PEXPIRE', MEMBERS, whole(math.max(GRAVE, ttl / 250)))
end
