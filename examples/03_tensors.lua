--- Tensors in Lua: handles with arithmetic, scopes that free what was made in them.
-- Run: moonshard run examples/03_tensors.lua
local ms = require "moonshard"

local a = ms.tensor { { 1, 2 }, { 3, 4 } }
local b = ms.ones { 2, 2 }
print(a + 2 * b)
print(a:matmul(b):sum():item())

local norm = ms.scope(function()
  local big = ms.randn({ 1000, 1000 }, 42)  -- freed when the scope ends
  return (big * big):sum():sqrt()           -- returned, so it stays
end)
print(("norm %.1f, held by Lua: %d bytes"):format(norm:item(), ms.memory().lua_tensor_bytes))
