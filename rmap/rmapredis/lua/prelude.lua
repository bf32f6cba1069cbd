-- In front of every script that changes a map. It alone knows how a map is laid out in Redis; layout.go has the other
-- half. The body behind it sees map, its own KEYS and its own ARGV, and nothing is written before the body has returned.
--
--   map.now                           the server's clock in milliseconds of Unix time
--   map.get(key)                      the entry as {value=, deadline=, number=, nonce=, text=}, or nil
--   map.touch(key)                    the same, and removes what is past its deadline
--   map.set(key, value, deadline)     value: a byte for the kind (p, i or l), then the data; deadline: ms, or 0
--   map.delete(key)                   whether there was an entry
--   map.clear()                       remove all entries
--   map.destroy()                     the same, and forget the map after a while
--   map.add(a, b)                     the sum of two decimal numbers of 64 bits, exactly
--   map.fail(code)                    end the script with an error of this format; nothing is written
--
-- What the body does becomes one change with one number, or none if it comes to nothing.

local PURGE, GRAVE = 128, 86400000
local MAXKEY, MAXVALUE, MAXWRITE = 65536, 1048576, 4194304
local LOGGED, LOGLENGTH, LOGTIME = 4096, 1024, 300000

local HASH, DUE, LOG, TMP = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local CHANNEL, FRESH, NONCE, VERSION = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local TTL, SLIDING, MAXENTRIES = ARGV[5], ARGV[6], tonumber(ARGV[7])

local map = { op = 0 }

function map.fail(code)
  error({ err = 'RMAP' .. code .. ' ' .. map.op })
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
map.now = now

-- The header, in the field that no key can have.
local header = redis.call('HGET', HASH, '')
local version, generation, number, prev, cleared, ttl, sliding, expires, dated
if header then
  version, generation, number, prev, cleared, ttl, sliding, expires, dated =
    string.match(header, '^(%d+) (%x+) (%d+) (%x+) (%d+) (%d+) ([01]) (%d+) ([01])$')
  version = version or string.match(header, '^(%d+) ')
  if version and tonumber(version) > tonumber(VERSION) then
    map.fail('FORMAT')
  elseif not generation then
    map.fail('FOREIGN')
  end
  expires = tonumber(expires)
  if expires > 0 and expires <= now then
    header = nil -- it had a single millisecond, see store()
  end
elseif redis.call('EXISTS', HASH) == 1 then
  map.fail('FOREIGN')
end
if not header then
  generation, number, prev, cleared, ttl, sliding, expires = FRESH, 0, '0000000000000000', '0', '0', '0', 0
end
local tomb = header and ttl == '0' and expires > 0 -- destroyed, and only its revision is remembered
local born = tomb or not header                    -- a change makes the lifetime anew
local ended = expires                              -- what the keys' own expiry is
if not born and TTL ~= '' and (TTL ~= ttl or SLIDING ~= sliding) then
  error({ err = 'RMAPLIFETIME ' .. ttl .. ' ' .. sliding })
end
number = string.format('%.0f', number + 1)

local staged = {}  -- what becomes of keys: an entry's text, or false
local deadlines = {}
local gone = not header -- only what is staged is there
local wiped = false     -- there was a clear
local steps = {}
local sets, size = 0, 0
local stale = {} -- members of DUE that have no business there
local mark = number .. '.' .. NONCE .. ':'

local function step(text)
  steps[#steps + 1] = text
end

local function remove(how, key)
  staged[key], deadlines[key] = false, nil
  step(how .. #key .. ':' .. key)
end

local function parsed(text)
  local at, last, by, nonce, deadline = string.find(text, '^(%d+)%.(%x+):(%d*):[pil]')
  if not at then -- somebody else wrote it: it has no kind that anything works on, and can be replaced and removed
    return { text = text, value = '?' .. text, number = '0', nonce = '0000000000000000', deadline = 0 }
  end
  return { text = text, value = string.sub(text, last), number = by, nonce = nonce, deadline = tonumber(deadline) or 0 }
end

local function expired(entry)
  return entry.deadline > 0 and entry.deadline <= now
end

local function look(key)
  local text = staged[key]
  if text == nil and not gone then
    text = redis.call('HGET', HASH, key)
  end
  if not text then
    return nil
  end
  local entry = parsed(text)
  return entry, expired(entry)
end

function map.get(key)
  local entry, over = look(key)
  return not over and entry or nil
end

function map.touch(key)
  local entry, over = look(key)
  if over then
    remove('x', key)
    return nil
  end
  return entry
end

function map.set(key, value, deadline)
  if key == '' or not string.find(value, '^[pil]') then
    map.fail('INVALID')
  end
  size = size + #key + #value - 1
  if #key > MAXKEY or #value > MAXVALUE + 1 or size > MAXWRITE then
    map.fail('TOOLARGE')
  end
  local text = mark .. (deadline > 0 and string.format('%.0f', deadline) or '') .. ':' .. value
  staged[key], deadlines[key] = text, deadline > 0 and deadline or nil
  sets = sets + 1
  tomb = false
  step('s' .. #key .. ':' .. key .. #text .. ':' .. text)
end

function map.delete(key)
  if not map.touch(key) then
    return false
  end
  remove('d', key)
  return true
end

function map.add(a, b)
  redis.call('SET', TMP, a)
  local sum = redis.pcall('INCRBY', TMP, b)
  local text = redis.call('GET', TMP) -- the reply is a number of Lua, which is not exact
  redis.call('DEL', TMP)
  if type(sum) == 'table' then
    map.fail('RANGE')
  end
  return text
end

-- How many entries there would be, those past their deadline that have not been removed included.
local function count()
  local n = gone and 0 or redis.call('HLEN', HASH) - 1
  for key, text in pairs(staged) do
    if not gone and redis.call('HEXISTS', HASH, key) == 1 then
      n = n - 1
    end
    if text then
      n = n + 1
    end
  end
  return n
end

local function clear(how)
  staged, deadlines, gone, wiped, sets = {}, {}, true, true, 0
  step(how)
end

function map.clear()
  if count() > 0 then
    clear('c')
  end
end

function map.destroy()
  if tomb or not (header or #steps > 0) then
    return
  end
  clear('y')
  tomb, born = true, true
end

-- Entries past their deadline go first, so that no operation meets them. A map without deadlines says so in its header.
dated = header and dated == '1' and redis.call('ZCARD', DUE) > 0
if dated then
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, PURGE)) do
    local text = redis.call('HGET', HASH, key)
    if text and expired(parsed(text)) then
      remove('x', key)
    else
      stale[#stale + 1] = key
    end
  end
end

-- Calls a command with the arguments in list behind its first ones, as many at a time as Lua can hand over.
local function batched(command, key, list)
  for from = 1, #list, 1000 do
    redis.call(command, key, unpack(list, from, math.min(from + 999, #list)))
  end
end

local function lifetime()
  if tomb then
    ttl, sliding, expires = '0', '0', now + GRAVE
  elseif born then
    ttl, sliding = TTL ~= '' and TTL or '0', TTL ~= '' and SLIDING or '0'
    expires = ttl ~= '0' and now + ttl or 0
  elseif sliding == '1' then
    expires = now + ttl
  end
end

-- Writes the entries and when they end.
local stored = false -- whether the new header is there
local function store(place)
  local fresh = wiped or not header
  if fresh then
    redis.call('UNLINK', HASH, DUE) -- DUE may be left of a life that ended otherwise than by its time
  end
  local put, drop, add, undated = { '', '' }, {}, {}, stale
  for key, text in pairs(staged) do
    if text then
      put[#put + 1], put[#put + 2] = key, text
    elseif not fresh then
      drop[#drop + 1] = key
    end
    if deadlines[key] then
      add[#add + 1], add[#add + 2] = string.format('%.0f', deadlines[key]), key
    elseif not fresh then
      undated[#undated + 1] = key
    end
  end
  put[2] = place .. ((#add > 0 or (dated and not fresh)) and ' 1' or ' 0')
  batched('HSET', HASH, put)
  stored = true
  batched('HDEL', HASH, drop)
  if dated and not fresh then
    batched('ZREM', DUE, undated)
  end
  batched('ZADD', DUE, add)
  -- Redis keeps a key to the end of its last millisecond, and drops at once what ends in the present one.
  local last = string.format('%.0f', math.max(expires - 1, now + 1))
  if expires > 0 and (fresh or expires ~= ended) then
    redis.call('PEXPIREAT', HASH, last)
  elseif expires == 0 and ended > 0 and not fresh then
    redis.call('PERSIST', HASH)
  end
  if expires > 0 and (#add > 0 or dated) then
    redis.call('PEXPIREAT', DUE, last)
  end
end

-- The log helps those who were away for a moment. It can be done without, so nothing fails for it.
local function log(message)
  if not header or #message > LOGGED then
    redis.pcall('UNLINK', LOG)
  end
  if #message > LOGGED then
    return
  end
  local id = number .. '-0'
  local done = redis.pcall('XADD', LOG, 'MAXLEN', '~', LOGLENGTH, id, 'm', message)
  if type(done) == 'table' then -- it knows of numbers that the map has not come to: the map was set back
    redis.pcall('UNLINK', LOG)
    redis.pcall('XADD', LOG, id, 'm', message)
  end
  redis.pcall('PEXPIRE', LOG, LOGTIME)
end

local function commit(reply)
  if #steps == 0 then
    return { 0, header and generation or '', header and string.format('%.0f', number - 1) or '0', header and prev or '', reply }
  end
  if MAXENTRIES > 0 and sets > 0 then
    local before = header and redis.call('HLEN', HASH) - 1 or 0
    if (wiped and 0 or before) + sets > MAXENTRIES then
      local after = count()
      if after > MAXENTRIES and after > before then -- what is too large already can be made smaller
        error({ err = 'RMAPENTRIES ' .. after })
      end
    end
  end
  if wiped then
    cleared = number
  end
  lifetime()
  local ends = string.format('%.0f', expires)
  local message = table.concat({ VERSION, generation, number, NONCE, prev, string.format('%.0f', now), ends }, ' ') ..
    '\n' .. table.concat(steps)
  -- What may be forbidden comes first: a user without the channel leaves nothing half done, nor does something else
  -- that is where the deadlines are to be.
  if next(deadlines) and not dated then
    redis.call('ZCARD', DUE)
  end
  redis.call('PUBLISH', CHANNEL, message)
  local done, why = pcall(store, table.concat({ VERSION, generation, number, NONCE, cleared, ttl, sliding, ends }, ' '))
  if not done and stored then
    -- The user may do a part of this. Nobody has the nonce that the header gets now, so every copy reads what there is.
    local other = table.concat({ VERSION, generation, number, string.reverse(NONCE), cleared, ttl, sliding, ends, 1 }, ' ')
    redis.call('HSET', HASH, '', other)
    error({ err = 'RMAPHALF the user lacks a permission, and a part is done' })
  elseif not done then
    error(why)
  end
  log(message)
  return { 1, generation, number, NONCE, reply }
end

local own = { KEYS = {}, ARGV = {} }
for i = 5, #KEYS do
  own.KEYS[i - 4] = KEYS[i]
end
for i = 8, #ARGV do
  own.ARGV[i - 7] = ARGV[i]
end
