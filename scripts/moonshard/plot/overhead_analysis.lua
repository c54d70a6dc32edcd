--- Figure: what every mode costs above the baseline with the same other options: memory and time (document 000).
local overhead = require "moonshard.analyze.overhead"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

--- A point's figure and that of its baseline; nil where one of them is missing.
local function pair(results, point, axis, baseline, read)
  local partner = overhead.partner_of(results, point, axis, baseline)
  if not partner or partner.status ~= "ok" then return nil end
  return read(point), read(partner)
end

return function(results, options)
  options = options or {}
  local axis, baseline = overhead.baseline_of(results, { axis = options.axis, baseline = options.baseline })
  local name = tostring(baseline)
  local function is_other(point)
    if point.options[axis] ~= baseline then return true end
    name = plot_points.name(point, { axis })
    return false
  end
  local memory = plot_spec.grouped(results, { series = axis, keep = is_other, title = "Memory", measure = "bytes",
    label = "additional peak memory", value = function(point)
      local own, base = pair(results, point, axis, baseline, plot_points.peak_bytes)
      return own and base and own - base
    end })
  local time = plot_spec.grouped(results, { series = axis, keep = is_other, title = "Time", measure = "%",
    label = "additional step time", value = function(point)
      local own, base = pair(results, point, axis, baseline, plot_points.step_ms)
      return own and base and base > 0 and 100 * (own / base - 1) or nil
    end })
  if not memory or not time then
    return nil, ("needs good points beside good ones with %s = %s"):format(axis, tostring(baseline))
  end
  return plot_spec.spec(plot_spec.title("Overhead against " .. name, results), { memory, time }, { width = 1200 })
end
