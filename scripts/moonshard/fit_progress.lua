--- Progress of a training run: one moving line on a terminal, a line now and then elsewhere, nothing on ranks but the first.
local native = require "moonshard.native"
local progress = require "moonshard.progress"

local M = {}
local Line = {}
Line.__index = Line

local moving_period_s, log_period_s, width = 0.1, 10, 24

local function write(text)
  io.stdout:write(text)
  io.stdout:flush()
end

--- @tparam number from step that was last done
-- @tparam number to step to be reached
-- @tparam boolean is_on
function M.new(from, to, is_on)
  return setmetatable({ from = from, to = to, is_on = is_on, on_terminal = is_on and native.launch.is_terminal(),
    began = native.launch.clock(), said = native.launch.clock() }, Line)
end

--- Removes the moving line, so that other text can be printed.
function Line:close()
  if self.drawn then write("\r\27[K") end
  self.drawn = false
end

function Line:say(text)
  if not self.is_on then return end
  self:close()
  write(text .. "\n")
end

local function figures(row)
  local parts = { ("loss %.4g"):format(row.loss or 0 / 0) }
  if row.lr then parts[#parts + 1] = ("lr %.3g"):format(row.lr) end
  if row.epsilon then parts[#parts + 1] = ("epsilon %.3g"):format(row.epsilon) end
  return table.concat(parts, ", ")
end

--- After a step.
function Line:step(row)
  if not self.is_on then return end
  local now = native.launch.clock()
  if now - (self.on_terminal and (self.ticked or 0) or self.said) < (self.on_terminal and moving_period_s or log_period_s) then return end
  self.ticked, self.said = now, now
  local done = row.step - self.from
  local left = (now - self.began) / done * (self.to - row.step)
  local times = ("%s, eta %s"):format(progress.clock_text(now - self.began), progress.clock_text(left))
  if not self.on_terminal then return write(("step %d/%d, %s: %s\n"):format(row.step, self.to, times, figures(row))) end
  local filled = math.floor(width * row.step / self.to)
  write(("\r\27[K[%s%s] %d/%d, %s  %s"):format(("#"):rep(filled), ("."):rep(width - filled), row.step, self.to, times, figures(row)))
  self.drawn = true
end

return M
