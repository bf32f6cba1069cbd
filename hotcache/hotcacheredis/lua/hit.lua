-- In front of what reads: how the usual item is known, which is there and need not be refreshed. KEYS: floors first.
-- ARGV: the format first.

local head, time = redis.call('HGET', KEYS[1], ''), redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local known = head and string.sub(head, 1, 2) == ARGV[1] .. ' ' and string.sub(head, 1, 19)

local function usual(item)
  return item and string.sub(item, 1, 19) == known and tonumber(string.sub(item, 56, 71)) > now and
    tonumber(string.sub(item, 73, 88)) > now and tonumber(string.sub(item, 90, 105)) > now
end
