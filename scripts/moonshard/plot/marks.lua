--- Figures of lines and marks: time against memory, and both against the batch size.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local overhead = require "moonshard.analyze.overhead"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local M = {}

--- Panels of one of these figures over the batch size: the first of them that any point has.
local function over_batch(results, options, what, asks)
  local axis = options.axis or plot_points.growing_axis(results, "batch_size")
  if not axis then return nil, "needs points of several batch sizes" end
  for _, ask in ipairs(asks) do
    local panels = plot_spec.lines_over(results, lists.merged(ask, { axis = axis }))
    if panels then
      return plot_spec.spec(ask.title, results, panels, { columns = #panels > 3 and 3 or nil, height = #panels <= 3 and 440 or nil })
    end
  end
  return nil, "needs points with status ok and a " .. what
end

--- Figure: tokens per second against the batch size (document 002).
function M.throughput_vs_batch(results, options)
  return over_batch(results, options, "throughput", lists.map({ "tokens", "samples" }, function(what)
    return { title = ("Throughput in %s per second"):format(what), measure = what .. "/s", label = "throughput",
      value = function(point) return plot_points.metric(point, what .. "_per_s") end }
  end))
end

--- Figure: peak memory against the batch size (document 002).
function M.memory_vs_batch(results, options)
  return over_batch(results, options, "peak memory",
    { { title = "Peak memory of a rank", measure = "bytes", label = "peak memory", value = plot_points.peak_bytes } })
end

--- Figure: peak memory against step time, one mark per point, its size beside it (document 000).
function M.memory_vs_time_tradeoff(results, options)
  local axis = plot_points.series_axis(results, options)
  local axes = plot_points.other_axes(results, axis)
  local function step_ms(point) return point.status == "ok" and plot_points.step_ms(point) or nil end
  local largest_ms
  for _, ms in ipairs(lists.map(lists.select(results.points, step_ms), step_ms)) do largest_ms = math.max(largest_ms or 0, ms) end
  if not largest_ms then return nil, "needs points with status ok and a step time" end
  local time_unit, per_ms = plot_spec.time_unit(largest_ms)
  local function series_name(point) return plot_points.name(point, { axis }) end
  local series, largest = plot_spec.collect(results.points, {
    series = series_name, colors = plot_spec.colors(results, series_name), axes = plot_points.other_axes(results),
    x = function(point) return step_ms(point) and plot_points.peak_bytes(point) and step_ms(point) * per_ms or nil end,
    value = function(point) return plot_points.step_ms(point) and plot_points.peak_bytes(point) end,
    text = function(point) return #axes > 0 and plot_points.name(point, axes) or "" end,
  })
  if not series then return nil, "needs points with status ok and a peak memory" end
  local unit, factor = plot_spec.memory_unit(largest)
  plot_spec.scale(series, factor)
  local beside = plot_points.axis_label(axes)
  if beside.label == "configuration" then beside.label = "what varies of the configuration" end
  local note = #axes > 0 and ("Beside the marks: %s."):format(beside.unit and beside.label .. " in " .. beside.unit or beside.label) or nil
  return plot_spec.spec("Memory against time", results, { {
    kind = "scatter", series = series, x = { label = "median step time", unit = time_unit }, y = { label = "peak memory", unit = unit },
  } }, { note = note })
end

--- Bars of time and memory as multiples of the baseline's; nil without a good baseline.
local function ratio_panel(results, axes, options)
  local axis, baseline = overhead.baseline_of(results, options)
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

--- Figure: time and memory of every engine, as marks and as multiples of the baseline (document 004).
function M.performance_tradeoff(results, options)
  local scatter, reason = M.memory_vs_time_tradeoff(results, options)
  if not scatter then return nil, reason end
  local panel = scatter.panels[1]
  panel.title = "Time and memory"
  local panels = { panel, ratio_panel(results, plot_points.other_axes(results), options) }
  return plot_spec.spec("Performance trade-off", results, panels,
    { width = #panels > 1 and 1250 or 900, note = scatter.note })
end

return M
