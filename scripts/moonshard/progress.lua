--- Progress of a sweep: one moving line with an ETA on a terminal, one line per point elsewhere.
local native = require "moonshard.native"

local M = {}
local Progress = {}
Progress.__index = Progress

function M.new(total, on_terminal)
  return setmetatable({ total = total, done = 0, failed = 0, measured = 0, spent = 0, on_terminal = on_terminal }, Progress)
end

local function clock_text(seconds)
  seconds = math.floor(seconds + 0.5)
  if seconds >= 3600 then return ("%d:%02d:%02d"):format(seconds / 3600, seconds / 60 % 60, seconds % 60) end
  return ("%d:%02d"):format(seconds / 60, seconds % 60)
end

local function write(text)
  io.stdout:write(text)
  io.stdout:flush()
end

--- Removes the moving line, so that other text can be printed.
function Progress:close()
  if self.on_terminal and self.drawn then write("\r\27[K") end
  self.drawn = false
end

function Progress:say(text)
  self:close()
  write(text .. "\n")
end

function Progress:tick()
  if not self.on_terminal then return end
  local now = native.launch.clock()
  local width = 24
  local filled = math.floor(width * self.done / self.total)
  local eta = "eta ..."
  if self.measured > 0 then
    local each = self.spent / self.measured
    local left = math.max(each * (self.total - self.done) - (now - self.started), 0)
    eta = "eta " .. clock_text(left)
  end
  write(("\r\27[K[%s%s] %d/%d%s %s  %s (%s)"):format(("#"):rep(filled), ("."):rep(width - filled), self.done, self.total,
    self.failed > 0 and (", %d failed"):format(self.failed) or "", eta, self.label, clock_text(now - self.started)))
  self.drawn = true
end

function Progress:start(label)
  self.label, self.started = label, native.launch.clock()
  self:tick()
end

function Progress:skip(text)
  self.done = self.done + 1
  self:say(("[%d/%d] %s"):format(self.done, self.total, text))
end

--- One point's outcome as one line.
local function outcome(record)
  if record.status ~= "ok" then return record.status .. ": " .. record.error end
  return ("%.1f ms, peak %.1f MiB"):format(record.metrics.median_time_ms, record.metrics.peak_memory_mb)
end

function Progress:finish(record)
  self.done = self.done + 1
  self.measured = self.measured + 1
  self.spent = self.spent + native.launch.clock() - self.started
  if record.status ~= "ok" then self.failed = self.failed + 1 end
  self:say(("[%d/%d] %s: %s"):format(self.done, self.total, self.label, outcome(record)))
end

return M
