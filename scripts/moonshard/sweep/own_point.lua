--- A point in the process of a script: the script's own function, or an experiment with the script's engines.
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}

local function planned(folder, id)
  for _, point in ipairs(native.records.read_json(folder .. "/sweep.json").points) do
    if point.id == id then return point end
  end
  error(("sweep: expected a point of %s/sweep.json, got '%s'"):format(folder, id), 0)
end

local function check_values(where, values)
  if type(values) ~= "table" then error(("%s: expected a table { name = value }, got %s"):format(where, type(values)), 0) end
  for key, value in pairs(values) do
    local kind = type(value)
    if type(key) ~= "string" then error(("%s: expected names as keys, got %s"):format(where, tostring(key)), 0) end
    if kind ~= "number" and kind ~= "string" and kind ~= "boolean" then
      error(("%s: '%s': expected a number, a text or a boolean, got %s"):format(where, key, kind), 0)
    end
  end
  return values
end

--- The function `log(step, { loss = … })`, and the list that it fills. A line of the point's log tells each step.
local function step_log(began)
  local steps, last = {}, began
  return function(step, values)
    if type(step) ~= "number" then error(("log: expected the number of a step first, got %s"):format(type(step)), 2) end
    values = check_values("log", values or {})
    local now = native.launch.clock()
    local row = lists.merged({ step = step, warmup = false, time_ms = 1000 * (now - last) }, values)
    steps[#steps + 1], last = row, now
    local parts = lists.map(lists.keys(values), function(key) return ("%s %s"):format(key, tostring(values[key])) end)
    print(("step %d: %s"):format(step, table.concat(parts, ", ")))
    io.stdout:flush()
  end, steps
end

--- What tables and plots of all points want, where the function has not measured it: the time between logged steps (or of the whole
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
  return lists.merged(usual, metrics), usual.median_time_ms and { samples_ms = samples, step_ms = time } or { samples_ms = {} }
end

local function record_of_function(own_run, point)
  local began = native.launch.clock()
  local log, steps = step_log(began)
  local values = lists.merged(point.options, point.asked)
  local metrics = check_values("ms.sweep: run", own_run(values, log))
  local all, time = with_usual(metrics, steps, native.launch.clock() - began)
  return { status = "ok", metrics = all, own_metrics = lists.keys(metrics), steps = steps, time = time }
end

--- Runs a point and writes its record.
-- @tparam[opt] function own_run the sweep's own; without it the point is an experiment
-- @treturn number exit code of the process
function M.run(own_run, folder, id)
  local point = planned(folder, id)
  local ok, record = xpcall(function()
    if own_run then return record_of_function(own_run, point) end
    return native.run_point(point.options, ("%s/points/%s"):format(folder, id))
  end, function(message)
    if native.launch.interrupted() then return message end
    print(type(message) == "string" and debug.traceback(message, 2) or tostring(message))
    return message
  end)
  if not ok then
    if native.launch.interrupted() then return 130 end
    local text = tostring(record)
    record = { status = text:find("memory: ", 1, true) and "oom" or "failed", error = text:match("^[^\n]*") }
  end
  local writer = native.records.attach(folder)
  native.records.write_point(writer, id, lists.merged(record, { schema_version = 1, id = id, options = point.options }))
  return record.status == "ok" and 0 or record.status == "oom" and 3 or 1
end

return M
