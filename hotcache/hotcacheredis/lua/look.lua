
-- Answers several usual reads. KEYS: floors, and the items. ARGV: the format, how many bytes of items are enough. Returns
-- header, now, and each item that is the usual one; the rest have to be asked for one by one.
local out, room = { head, string.format('%.0f', now) }, tonumber(ARGV[2])
for i = 2, #KEYS do
  local item = room > 0 and redis.call('GET', KEYS[i])
  out[i + 1] = usual(item) and item
  room = room - (item and #item or 0)
end
return out
