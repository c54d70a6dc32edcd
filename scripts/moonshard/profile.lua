--- ms.profile: times a trainer's steps and says where the time goes.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local Profile = {}
Profile.__index = Profile
local M = { class = Profile }

function Profile:__tostring()
  local rows = {}
  for i, name in ipairs(self.phase_order) do
    local phase = self.phases[name]
    rows[i] = { name, phase.median, phase.iqr, 100 * phase.median / self.time.median }
  end
  rows[#rows + 1] = { "step", self.time.median, self.time.iqr, 100 }
  return ("%s\nloss %.4f, peak %.1f MiB, %d steps after %d of warm-up"):format(
    text_table.format({ "phase", "median ms", "iqr ms", "%" }, rows), self.loss,
    self.peak_memory_bytes / 2 ^ 20, self.time.count, self.warmup)
end

local function check_trainer(trainer, level)
  -- Reading a field of another native object raises; that, too, means "not a trainer".
  local ok, step = pcall(function() return trainer.step end)
  if ok and type(step) == "function" then return end
  error(("ms.profile: argument 1: expected a Trainer, got a %s; make one with ms.trainer"):format(type(trainer)), level + 1)
end

local function check_count(name, value, least, level)
  if type(value) == "number" and value >= least and value == math.floor(value) and value < math.huge then return end
  error(("ms.profile: option '%s': expected a whole number from %d, got %s"):format(name, least, tostring(value)), level + 1)
end

--- Runs steps and summarises them.
-- @tparam Trainer trainer
-- @tparam[opt] table options iters (5), warmup (1)
-- @treturn Profile with time, phases (each count, mean, median, min, max, p95, iqr), loss, peak_memory_bytes
function M.profile(trainer, options)
  options = guard.check("ms.profile", options, { "iters", "warmup" }, 2)
  check_trainer(trainer, 2)
  local iters, warmup = options.iters or 5, options.warmup or 1
  check_count("iters", iters, 1, 2)
  check_count("warmup", warmup, 0, 2)
  local times, samples, peak, loss = {}, {}, 0, 0
  for i = 1, warmup + iters do
    local report = trainer:step()
    loss = report.loss
    if i > warmup then
      times[#times + 1] = report.time_ms
      peak = math.max(peak, report.memory.max_allocated_bytes)
      for name, ms in pairs(report.phases) do
        samples[name] = samples[name] or {}
        table.insert(samples[name], ms)
      end
    end
  end
  local phases = {}
  for name, list in pairs(samples) do phases[name] = native.records.summarize(list) end
  return setmetatable({ time = native.records.summarize(times), phases = phases,
    phase_order = native.analysis.phases_in_order(lists.keys(samples)),
    loss = loss, peak_memory_bytes = peak, warmup = warmup }, Profile)
end

return M
