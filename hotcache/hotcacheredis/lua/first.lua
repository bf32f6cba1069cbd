
-- In front of the prelude for one read. What follows would come to the same, and takes three times as long to say so.
if ARGV[7] == '0000000000000000' then
  local item = redis.call('GET', KEYS[4])
  if usual(item) then
    return { 'h', head, item, string.format('%.0f', now) }
  end
end
