--- Records of what scripts measure themselves: steps that they log, metrics that they return, and the usual figures beside these.
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}

--- Raises unless values are a table of names with numbers, texts or truth values.
-- @tparam string where opens the message
-- @tparam[opt=0] number level of the caller, as for error()
function M.check_values(where, values, level)
  level = level and level + 1 or 0
  if type(values) ~= "table" then error(("%s: expected a table { name = value }, got %s"):format(where, type(values)), level) end
  for key, value in pairs(values) do
    local kind = type(value)
    if type(key) ~= "string" then error(("%s: expected names as keys, got %s"):format(where, tostring(key)), level) end
    if kind ~= "number" and kind ~= "string" and kind ~= "boolean" then
      error(("%s: '%s': expected a number, a text or a boolean, got %s"):format(where, key, kind), level)
    end
  end
  return values
end

--- The function `log(step, { loss = … })`, and the list that it fills.
-- @tparam number began clock time of the point's begin
-- @tparam function tell takes a line on each step
function M.step_log(began, tell)
  local steps, last = {}, began
  return function(step, values)
    if type(step) ~= "number" then error(("log: expected the number of a step first, got %s"):format(type(step)), 2) end
    values = M.check_values("log", values or {}, 2)
    local now = native.launch.clock()
    local row = lists.merged({ step = step, warmup = false, time_ms = 1000 * (now - last) }, values)
    steps[#steps + 1], last = row, now
    local parts = lists.map(lists.keys(values), function(key) return ("%s %s"):format(key, tostring(values[key])) end)
    tell(("step %d: %s"):format(step, table.concat(parts, ", ")))
  end, steps
end

--- What tables and plots of all points want, where the script has not measured it: the time between logged steps (or of the whole
-- point), the last loss, the most memory of tensors on the host.
local function with_usual(metrics, steps, seconds)
  local samples = #steps > 0 and lists.column(steps, "time_ms") or { 1000 * seconds }
  local time = native.records.summarize(samples)
  local usual = { end_to_end_s = seconds }
  if metrics.median_time_ms == nil and metrics.avg_time_ms == nil then
    usual.median_time_ms, usual.avg_time_ms, usual.iqr_time_ms = time.median, time.mean, time.iqr
  end
  local bytes = package.loaded["moonshard"].memory().cpu_max_allocated_bytes
  if metrics.peak_memory_bytes == nil and metrics.peak_memory_mb == nil and bytes > 0 then
    usual.peak_memory_bytes, usual.peak_memory_mb, usual.peak_memory_gb = bytes, bytes / 2 ^ 20, bytes / 2 ^ 30
  end
  if #steps > 0 and type(steps[#steps].loss) == "number" then usual.final_loss = steps[#steps].loss end
  return lists.merged(usual, metrics), usual.median_time_ms and { samples_ms = samples, step_ms = time } or {}
end

--- The record of a point that ended well.
-- @tparam table metrics what the script gave
-- @tparam {table,...} steps
-- @tparam number seconds from begin to end
function M.good(metrics, steps, seconds)
  local all, time = with_usual(metrics, steps, seconds)
  return { status = "ok", metrics = all, own_metrics = lists.keys(metrics), steps = M.list(steps), time = time }
end

--- A list as records hold it: an empty table would be an object in JSON.
function M.list(items) return #items > 0 and items or nil end

return M
