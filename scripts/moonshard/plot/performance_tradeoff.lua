--- Figure: time and memory of every engine, as marks and as multiples of the baseline (document 004).
local overhead = require "moonshard.analyze.overhead"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

--- Bars of time and memory as multiples of the baseline's; nil without a good baseline.
local function ratio_panel(results, axes, options)
  local axis, baseline = overhead.baseline_of(results, { axis = options.axis, baseline = options.baseline })
  local names, any, base_name = {}, false, tostring(baseline)
  local series = {}
  local costs = overhead.costs(results, axis, baseline)
  local function time(cost) return cost.time_ratio end
  local function memory(cost) return cost.memory_percent and 1 + cost.memory_percent / 100 end
  for s, ask in ipairs { { "time", time, 8 }, { "memory", memory, 10 } } do
    local entry = { name = ask[1], color = ask[3], x = {}, y = {}, status = {} }
    for i, point in ipairs(results.points) do
      local cost = costs[point]
      if cost.partner then base_name = plot_points.name(cost.partner, { axis }) end
      local ratio = ask[2](cost)
      any = any or (ratio ~= nil and not cost.is_baseline)
      names[i] = plot_points.name(point, axes)
      entry.x[i], entry.y[i] = i - 1, ratio and math.floor(100 * ratio + 0.5) / 100 or native.null
      entry.status[i] = ratio and "ok" or point.status == "ok" and "no baseline" or tostring(point.status)
    end
    series[s] = entry
  end
  if not any then return nil end
  local x = plot_points.axis_label(axes)
  x.categories = names
  return { kind = "bars", title = "Against " .. base_name, x = x, y = { label = "multiple of " .. base_name }, series = series,
    references = { { y = { 1 }, text = "" } } }
end

return function(results, options)
  local scatter, reason = require("moonshard.plot.memory_vs_time_tradeoff")(results, options)
  if not scatter then return nil, reason end
  local panel = scatter.panels[1]
  panel.title = "Time and memory"
  local panels = { panel, ratio_panel(results, plot_points.varying(results), options or {}) }
  return plot_spec.spec(plot_spec.title("Performance trade-off", results), panels,
    { width = #panels > 1 and 1250 or 900, note = scatter.note })
end
