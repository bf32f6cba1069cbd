-- rmap.Write: conditions, then operations, each on what the one before left.
--
-- ARGV: whether old entries are wanted, the number of conditions, for each condition its key, test and operand, and
-- then for each operation its letter, its key unless it is for the whole map, and its operands.

local at = 1
local function argument()
  at = at + 1
  return ARGV[at - 1]
end

local want = argument() == '1'
for i = 1, tonumber(argument()) do
  local entry, test, operand = map.get(argument()), argument(), argument()
  local holds
  if test == 'absent' then
    holds = not entry
  elseif test == 'present' then
    holds = entry
  elseif test == 'value' then
    holds = entry and entry.value == operand
  else
    holds = entry and entry.nonce == operand
  end
  if not holds then
    return { i, entry and entry.text or false }
  end
end

-- Adds decimal numbers of 64 bits. Numbers of Lua are exact up to 2^53 only; beyond, Redis itself does it.
local function sum(a, b)
  local x, y, exact = tonumber(a), tonumber(b), 4503599627370496
  if x > -exact and x < exact and y > -exact and y < exact then
    return string.format('%.0f', x + y)
  end
  return map.add(a, b)
end

local looked = 0 -- at items of lists
local function items(data)
  local list, from = {}, 1
  while from <= #data do
    local _, colon, n = string.find(data, '^(%d+):', from)
    if not colon or colon + n > #data then
      map.fail('KIND')
    end
    list[#list + 1] = string.sub(data, colon + 1, colon + n)
    from = colon + n + 1
  end
  looked = looked + #list
  if looked > 1048576 then -- the server does nothing else meanwhile
    map.fail('TOOLARGE')
  end
  return list
end

local function encoded(list)
  for i, item in ipairs(list) do
    list[i] = #item .. ':' .. item
  end
  return table.concat(list)
end

-- What a list becomes, or nil when it stays as it is.
local function changed(op, data, more)
  if op == 'a' then
    return more ~= '' and data .. more or nil
  end
  local given, seen, list = items(more), {}, items(data)
  if op == 'r' then
    local left = {}
    for _, item in ipairs(given) do
      seen[item] = true
    end
    for _, item in ipairs(list) do
      if not seen[item] then
        left[#left + 1] = item
      end
    end
    return #left < #list and encoded(left) or nil
  end
  local fresh = {}
  for _, item in ipairs(list) do
    seen[item] = true
  end
  for _, item in ipairs(given) do
    if not seen[item] then
      seen[item] = true
      fresh[#fresh + 1] = item
    end
  end
  return #fresh > 0 and data .. encoded(fresh) or nil
end

local function data(entry, kind)
  if not entry then
    return nil
  end
  if string.sub(entry.value, 1, 1) ~= kind then
    map.fail('KIND')
  end
  return string.sub(entry.value, 2)
end

local function deadline(entry, ttl, keep)
  if entry and keep == '1' then
    return entry.deadline
  end
  return ttl > 0 and map.now + ttl or 0
end

local olds = {}
while at <= #ARGV do
  map.op = map.op + 1
  local op = argument()
  local key = op ~= 'c' and op ~= 'y' and argument()
  local old = nil
  if key and (want or op ~= 's' or ARGV[at + 2] == '1') then
    old = map.touch(key)
  end
  if want then
    olds[map.op] = old and old.text or false
  end
  if op == 's' then
    local value, ttl, keep = argument(), tonumber(argument()), argument()
    map.set(key, value, deadline(old, ttl, keep))
  elseif op == 'd' then
    map.delete(key)
  elseif op == 'n' then
    local delta, ttl, keep = argument(), tonumber(argument()), argument()
    local number = data(old, 'i') or '0'
    if not string.find(number, '^-?%d+$') then
      map.fail('KIND')
    end
    map.set(key, 'i' .. sum(number, delta), deadline(old, ttl, keep))
  elseif op == 'c' then
    map.clear()
  elseif op == 'y' then
    map.destroy()
  elseif op ~= 'x' then -- x has been done above
    local more, ttl, keep = argument(), tonumber(argument()), argument()
    local list = changed(op, data(old, 'l') or '', more)
    if list == '' then
      map.delete(key)
    elseif list then
      map.set(key, 'l' .. list, deadline(old, ttl, op == 'r' and '1' or keep))
    end
  end
end
return { 0, false, olds }
