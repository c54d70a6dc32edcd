--- Reads pickles: dictionaries, lists, tuples, texts, numbers. Files may come from anybody, and a pickle is a program: nothing in it is
-- imported or called; where a class or a function is named, its arguments stand for the result. Sizes are bounded.
local ffi = require "ffi"

local M = {}

--- Bytes of a file, values in it, and entries of the memo.
M.limits = { bytes = 2 ^ 30, values = 5e7 }

local reader = {}
reader.__index = reader

local function fail(self, form, ...) error(("%s: byte %d: %s"):format(self.where, self.at, form:format(...)), 0) end

function reader:take(count)
  local first = self.at
  if count < 0 or first + count - 1 > #self.text then fail(self, "expected %d more bytes, got the end of the file", count) end
  self.at = first + count
  return first
end

--- A whole number of some bytes, the lowest first; `signed` by the highest bit.
function reader:integer(count, signed)
  local first, value = self:take(count), 0
  for i = count - 1, 0, -1 do value = value * 256 + self.text:byte(first + i) end
  if signed and count > 0 and self.text:byte(first + count - 1) >= 128 then value = value - 256 ^ count end
  return value
end

function reader:bytes(count)
  local first = self:take(count)
  return self.text:sub(first, first + count - 1)
end

function reader:number()
  local first, buffer = self:take(8), ffi.new("union { uint8_t bytes[8]; double value; }")
  for i = 0, 7 do buffer.bytes[7 - i] = self.text:byte(first + i) end
  return tonumber(buffer.value)
end

function reader:push(value)
  self.values = self.values + 1
  if self.values > M.limits.values then fail(self, "expected at most %g values, got more", M.limits.values) end
  self.stack[#self.stack + 1] = value
end

function reader:pop()
  local value = self.stack[#self.stack]
  if value == nil then fail(self, "expected a value on the stack, got none") end
  self.stack[#self.stack] = nil
  return value
end

--- Values above the last mark, which go from the stack.
function reader:marked()
  local mark = table.remove(self.marks)
  if not mark then fail(self, "expected a mark, got none") end
  local list = {}
  for i = mark + 1, #self.stack do list[i - mark] = self.stack[i] end
  for i = #self.stack, mark + 1, -1 do self.stack[i] = nil end
  return list
end

function reader:top()
  local value = self.stack[#self.stack]
  if type(value) ~= "table" then fail(self, "expected a container on the stack, got %s", type(value)) end
  return value
end

local function set_items(self, list)
  local target = self:top()
  for i = 1, #list - 1, 2 do
    if list[i] ~= M.null then target[list[i]] = list[i + 1] end
  end
end

local function append_items(self, list)
  local target = self:top()
  for _, value in ipairs(list) do target[#target + 1] = value end
end

--- Stands for None: Lua's nil would be a hole in a list.
M.null = setmetatable({}, { __tostring = function() return "None" end })

local function tuple(count)
  return function(self)
    local list = {}
    for i = count, 1, -1 do list[i] = self:pop() end
    self:push(list)
  end
end

--- What a call would have made of its arguments: the first of them.
local function arguments_stand_for(arguments)
  local first = type(arguments) == "table" and arguments[1]
  return first == nil and {} or first
end

local operations = {
  [0x80] = function(self) self:integer(1) end,  -- PROTO
  [0x95] = function(self) self:integer(8) end,  -- FRAME
  [0x7d] = function(self) self:push {} end, [0x5d] = function(self) self:push {} end, [0x29] = function(self) self:push {} end,
  [0x28] = function(self) self.marks[#self.marks + 1] = #self.stack end,
  [0x58] = function(self) self:push(self:bytes(self:integer(4))) end, [0x8c] = function(self) self:push(self:bytes(self:integer(1))) end,
  [0x8d] = function(self) self:push(self:bytes(self:integer(8))) end, [0x43] = function(self) self:push(self:bytes(self:integer(1))) end,
  [0x42] = function(self) self:push(self:bytes(self:integer(4))) end, [0x54] = function(self) self:push(self:bytes(self:integer(4))) end,
  [0x55] = function(self) self:push(self:bytes(self:integer(1))) end,
  [0x94] = function(self) self.memo[#self.memo + 1] = self.stack[#self.stack] end,
  [0x71] = function(self) self.puts[self:integer(1)] = self.stack[#self.stack] end,
  [0x72] = function(self) self.puts[self:integer(4)] = self.stack[#self.stack] end,
  [0x68] = function(self) self:get(self:integer(1)) end, [0x6a] = function(self) self:get(self:integer(4)) end,
  [0x4a] = function(self) self:push(self:integer(4, true)) end, [0x4b] = function(self) self:push(self:integer(1)) end,
  [0x4d] = function(self) self:push(self:integer(2)) end, [0x8a] = function(self) self:push(self:integer(self:integer(1), true)) end,
  [0x8b] = function(self) self:push(self:integer(self:integer(4), true)) end,
  [0x47] = function(self) self:push(self:number()) end,
  [0x4e] = function(self) self:push(M.null) end, [0x88] = function(self) self:push(true) end, [0x89] = function(self) self:push(false) end,
  [0x75] = function(self) set_items(self, self:marked()) end,
  [0x73] = function(self)
    local value, key = self:pop(), self:pop()
    set_items(self, { key, value })
  end,
  [0x65] = function(self) append_items(self, self:marked()) end, [0x61] = function(self) append_items(self, { self:pop() }) end,
  [0x74] = function(self) self:push(self:marked()) end, [0x6c] = function(self) self:push(self:marked()) end,
  [0x64] = function(self)
    local list = self:marked()
    self:push {}
    set_items(self, list)
  end,
  [0x85] = tuple(1), [0x86] = tuple(2), [0x87] = tuple(3),
  [0x30] = function(self) self:pop() end, [0x31] = function(self) self:marked() end,
  [0x32] = function(self) self:push(self.stack[#self.stack]) end,
  [0x8f] = function(self) self:push {} end, [0x91] = function(self) self:push(self:marked()) end,
  [0x90] = function(self) append_items(self, self:marked()) end,
  [0x63] = function(self)  -- GLOBAL: two lines
    local _, last = self.text:find("^[^\n]*\n[^\n]*\n", self.at)
    if not last then fail(self, "expected the name of a global, got the end of the file") end
    self.at = last + 1
    self:push(M.null)
  end,
  [0x93] = function(self) self:pop() self:pop() self:push(M.null) end,
  [0x51] = function(self) self:pop() self:push(M.null) end,
  [0x52] = function(self) self:push(arguments_stand_for(self:pop(), self:pop())) end,
  [0x81] = function(self) self:push(arguments_stand_for(self:pop(), self:pop())) end,
  [0x62] = function(self)  -- BUILD: an object's state says more than its arguments
    local state = self:pop()
    if type(state) == "table" and state ~= M.null then
      self:pop()
      self:push(state)
    end
  end,
}

--- Memoised by MEMOIZE (in their order, from 0) or by BINPUT (by number).
function reader:get(index)
  local value = self.puts[index]
  if value == nil then value = self.memo[index + 1] end
  if value == nil then fail(self, "expected memo %d, got none", index) end
  self:push(value)
end

--- The value of a pickle.
-- @tparam string text bytes
-- @tparam string where opens the text of errors
function M.parse(text, where)
  if #text > M.limits.bytes then error(("%s: expected at most %g bytes, got %d"):format(where, M.limits.bytes, #text), 0) end
  local self = setmetatable({ text = text, where = where, at = 1, stack = {}, marks = {}, memo = {}, puts = {}, values = 0 }, reader)
  if text:byte(1) ~= 0x80 then error(("%s: expected a pickle of protocol 2 or later, got another kind of file"):format(where), 0) end
  while true do
    local code = self:integer(1)
    if code == 0x2e then return self:pop() end
    local operation = operations[code]
    if not operation then
      self.at = self.at - 1
      fail(self, "expected an operation of pickles of plain values, got 0x%02x", code)
    end
    operation(self)
  end
end

return M
