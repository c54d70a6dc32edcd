--- Random numbers that are the same on every machine: xoshiro128** (Blackman and Vigna, 2018). Lua's own generator is the script's.
local Generator = {}
Generator.__index = Generator
local M = {}

local band, bxor, lshift, rol, rshift, tobit = bit.band, bit.bxor, bit.lshift, bit.rol, bit.rshift, bit.tobit

--- The low 32 bits of a product; a double would lose them.
local function multiply(a, b)
  local low, high = band(a, 0xFFFF), rshift(a, 16)
  return tobit(low * (b % 2 ^ 32) % 2 ^ 32 + lshift(tobit(high * (b % 65536) % 2 ^ 32), 16) % 2 ^ 32)
end

--- A generator; streams of one seed are independent of each other.
-- @tparam number seed whole
-- @tparam[opt=0] number stream whole
function M.new(seed, stream)
  local state = bxor(tobit(seed % 2 ^ 32), tobit(multiply(tobit((stream or 0) + 1), 0x9E3779B1)), tobit(math.floor(seed / 2 ^ 32)))
  local self = setmetatable({}, Generator)
  -- Neighbouring seeds must not give neighbouring states: each word is a hash of a counter (Murmur's finalizer).
  for i = 1, 4 do
    state = tobit(state + 0x9E3779B9)
    local z = multiply(bxor(state, rshift(state, 16)), 0x85EBCA6B)
    z = multiply(bxor(z, rshift(z, 13)), 0xC2B2AE35)
    self[i] = bxor(z, rshift(z, 16))
  end
  if self[1] == 0 and self[2] == 0 and self[3] == 0 and self[4] == 0 then self[1] = 1 end
  return self
end

--- 32 random bits as a number from 0 on.
function Generator:bits()
  local s1 = self[2]
  local times5 = tobit(s1 + lshift(s1, 2))
  local turned = rol(times5, 7)
  local result = tobit(turned + lshift(turned, 3))
  local t = lshift(s1, 9)
  self[3] = bxor(self[3], self[1])
  self[4] = bxor(self[4], self[2])
  self[2] = bxor(self[2], self[3])
  self[1] = bxor(self[1], self[4])
  self[3] = bxor(self[3], t)
  self[4] = rol(self[4], 11)
  return result % 2 ^ 32
end

--- From 0 on, below 1, with 53 bits.
function Generator:uniform()
  local high = math.floor(self:bits() / 32)
  return (high * 2 ^ 26 + math.floor(self:bits() / 64)) / 2 ^ 53
end

--- A whole number from 1 to n.
function Generator:index(n) return math.floor(self:uniform() * n) + 1 end

--- A standard normal number (Box and Muller).
function Generator:normal()
  local radius = math.sqrt(-2 * math.log(1 - self:uniform()))
  return radius * math.cos(2 * math.pi * self:uniform())
end

return M
