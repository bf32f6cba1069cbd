-- The usual write, in front of the script that can do all: one value is set, without a deadline, in a map that exists,
-- lives for ever and has no deadlines, as its header says. What follows would come to the same, and takes three times as long to say so.
--
-- Where anything is different this does nothing and falls through. The writer has said nothing of a lifetime, or that
-- there is none. ARGV, behind what prelude.lua takes: the key and the value. Returns the beginning of the new header.

local call, hash = redis.call, KEYS[1]
local header = call('HGET', hash, '')
if header then
  local version, generation, number, prev, cleared = string.match(header, '^(%d+) (%x+) (%d+) (%x+) (%d+) 0 0 0 0$')
  local most = tonumber(ARGV[7])
  if version == ARGV[4] and (most == 0 or call('HLEN', hash) <= most) then
    local nonce, key = ARGV[3], ARGV[8]
    number = string.format('%.0f', number + 1)
    local entry = number .. '.' .. nonce .. '::' .. ARGV[9]
    local place = version .. ' ' .. generation .. ' ' .. number .. ' ' .. nonce .. ' '
    -- Where nothing ends nobody needs the time.
    local message = place .. prev .. ' 0 0\ns' .. #key .. ':' .. key .. #entry .. ':' .. entry
    call('PUBLISH', ARGV[1], message)
    call('HSET', hash, '', place .. cleared .. ' 0 0 0 0', key, entry)
    if #message > 4096 then
      redis.pcall('UNLINK', KEYS[3])
    else
      local id = number .. '-0'
      local done = redis.pcall('XADD', KEYS[3], 'NOMKSTREAM', 'MAXLEN', '~', '1024', id, 'm', message)
      if type(done) == 'table' then -- it knows of numbers that the map has not come to
        redis.pcall('UNLINK', KEYS[3])
      elseif not done then
        redis.pcall('XADD', KEYS[3], id, 'm', message)
      end
      if not done or number % 16 == 0 then -- often enough for what lasts for minutes
        redis.pcall('PEXPIRE', KEYS[3], '300000')
      end
    end
    return place
  end
end
