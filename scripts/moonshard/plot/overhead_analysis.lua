--- Figure: what every mode costs above the baseline with the same other options: memory and time (document 000).
local overhead = require "moonshard.analyze.overhead"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

return function(results, options)
  options = options or {}
  local axis, baseline = overhead.baseline_of(results, { axis = options.axis, baseline = options.baseline })
  local name = tostring(baseline)
  local function is_other(point)
    if point.options[axis] ~= baseline then return true end
    name = plot_points.name(point, { axis })
    return false
  end
  local costs = overhead.costs(results, axis, baseline)
  local memory = plot_spec.grouped(results, { series = axis, keep = is_other, title = "Memory", measure = "bytes",
    label = "additional peak memory", value = function(point) return costs[point].memory_bytes end })
  local time = plot_spec.grouped(results, { series = axis, keep = is_other, title = "Time", measure = "%",
    label = "additional step time", value = function(point) return costs[point].time_percent end })
  if not memory or not time then
    return nil, ("needs good points beside good ones with %s = %s"):format(axis, tostring(baseline))
  end
  return plot_spec.spec(plot_spec.title("Overhead against " .. name, results), { memory, time }, { width = 1200 })
end
