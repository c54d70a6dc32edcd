--- What each point costs beyond a baseline with the same other options: memory in GiB, time in percent.
local guard = require "moonshard.options_guard"
local text_table = require "moonshard.text_table"

local M = {}

--- The engine that a name stands for: "no_dp" is the seeds' word for "none".
function M.canonical_mode(name)
  for _, engine in ipairs(package.loaded["moonshard"].engines()) do
    if engine.name == name then return name end
    for _, alias in ipairs(engine.aliases) do
      if alias == name then return engine.name end
    end
  end
  return name
end

--- The axis and the value that results are compared with: as asked, else the sweep's own, else plain training.
-- @tparam Runs results
-- @tparam table options axis, baseline
-- @treturn string, any
function M.baseline_of(results, options)
  local own = results.baseline or {}
  local axis, baseline = options.axis, options.baseline
  if axis == nil then axis = baseline == nil and own.axis or "mode" end
  if baseline == nil and own.axis == axis then baseline = own.value end
  if baseline == nil then baseline = "none" end
  if axis == "mode" then baseline = M.canonical_mode(baseline) end
  return axis, baseline
end

--- The point that equals another in all axes but `axis`, where it has the baseline's value.
-- @tparam Runs results
-- @tparam table point
-- @tparam string axis e.g. "mode"
-- @param value of the baseline on that axis
-- @treturn table a point, or nil
function M.partner_of(results, point, axis, value)
  for _, other in ipairs(results.points) do
    local same = other.options[axis] == value
    for _, name in ipairs(results.axes) do
      same = same and (name == axis or other.options[name] == point.options[name])
    end
    if same then return other end
  end
end

--- GiB, or MiB where no point reaches one GiB; and what a MiB is of it.
-- @treturn string, number
function M.memory_unit(results)
  for _, point in ipairs(results.points) do
    if (point.metrics.peak_memory_mb or 0) >= 1024 then return "GiB", 1 / 1024 end
  end
  return "MiB", 1
end

--- Time and memory of every point, and what they are above the baseline's.
-- @tparam Runs results
-- @tparam[opt] table options baseline, axis (the sweep's own baseline, else "none" on the axis "mode")
-- @treturn Table columns: the axes, status, peak GiB, memory +GiB (MiB where all are below one GiB), avg ms, median ms, time +%
-- @usage print(ms.analyze.overhead(runs, { baseline = "no_dp" }))
function M.analyze(results, options)
  options = guard.check("ms.analyze.overhead", options, { "baseline", "axis" }, 2)
  local axis, baseline = M.baseline_of(results, options)
  local columns, rows, found = {}, {}, false
  for i, name in ipairs(results.axes) do columns[i] = name end
  local unit, factor = M.memory_unit(results)
  for _, title in ipairs { "status", "peak " .. unit, "memory +" .. unit, "avg ms", "median ms", "time +%" } do
    columns[#columns + 1] = title
  end
  for r, point in ipairs(results.points) do
    local row, n, metrics = {}, #results.axes, point.metrics
    for i, name in ipairs(results.axes) do row[i] = point.options[name] end
    row[n + 1] = point.status
    if point.status == "ok" then
      row[n + 4], row[n + 5] = metrics.avg_time_ms, metrics.median_time_ms
      if metrics.peak_memory_mb then row[n + 2] = metrics.peak_memory_mb * factor end
      local partner = M.partner_of(results, point, axis, baseline)
      found = found or partner ~= nil
      local other = partner and partner ~= point and partner.status == "ok" and partner.metrics or {}
      if metrics.peak_memory_mb and other.peak_memory_mb then row[n + 3] = (metrics.peak_memory_mb - other.peak_memory_mb) * factor end
      if metrics.median_time_ms and (other.median_time_ms or 0) > 0 then
        row[n + 6] = 100 * (metrics.median_time_ms / other.median_time_ms - 1)
      end
    end
    rows[r] = row
  end
  local notes
  if not found then notes = { ("No point has %s = %s: nothing to compare with."):format(axis, tostring(baseline)) } end
  return text_table.new { title = "Overhead against " .. tostring(baseline), columns = columns, rows = rows, notes = notes,
    axis = axis, baseline = baseline }
end

return M
