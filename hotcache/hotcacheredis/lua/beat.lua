-- Keeps a member on the list of those who may trust their memory, and returns the header. ARGV: the member, how many
-- there may be.

call('ZREMRANGEBYSCORE', MEMBERS, '-inf', whole(now))
if not call('ZSCORE', MEMBERS, '') then
  doubt()
elseif call('ZCARD', MEMBERS) > tonumber(ARGV[7]) and not call('ZSCORE', MEMBERS, ARGV[6]) then
  fail('FULL')
end
call('ZADD', MEMBERS, whole(now + TRUST), ARGV[6])
return header()
