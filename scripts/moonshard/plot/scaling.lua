--- Figure: growth of forward, backward, norms, communication and peak memory with the sequence length, both axes logarithmic,
-- with the fitted power and its verdict (document 001).
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"
local scaling = require "moonshard.analyze.scaling"

local shown = { "forward", "backward", "second backward", "norms", "clipped sum", "communication" }

--- One line of figures against the axis, with its fitted curve; nil where fewer than two points have the figure.
local function line_of(points, axis, name, read)
  local entry = { name = name, x = {}, y = {}, status = {}, labels = {} }
  local x, y = {}, {}
  for _, point in ipairs(points) do
    local place = plot_points.number(point.options[axis])
    local ok, figure = pcall(read, point)
    figure = point.status == "ok" and ok and plot_points.number(figure) or nil
    if place and (figure and figure > 0 or point.status ~= "ok") then
      local n = #entry.x + 1
      entry.x[n], entry.y[n], entry.status[n] = place, figure or native.null, tostring(point.status)
      entry.labels[n] = plot_points.name(point, { axis }, true)
      if figure then x[#x + 1], y[#y + 1] = place, figure end
    end
  end
  if #x < 2 then return nil end
  -- A curve through two points says nothing about the growth.
  return entry, #x >= scaling.least_points and native.analysis.curve(x, y) or nil
end

--- The curve that follows the figures best, with its power beside it.
local function add_fit(panel, name, curve, factor)
  if not curve then return end
  for i, y in ipairs(curve.y) do curve.y[i] = y * factor end
  panel.references[#panel.references + 1] = { series = name, text = curve.text, x = curve.x, y = curve.y }
end

--- Failed points are marked once per panel, on the line that is drawn first.
local function mark_failures_once(panel)
  for s = 2, #panel.series do
    local entry, kept = panel.series[s], { x = {}, y = {}, status = {}, labels = {} }
    for i = 1, #entry.x do
      if entry.y[i] ~= native.null then
        for _, key in ipairs { "x", "y", "status", "labels" } do table.insert(kept[key], entry[key][i]) end
      end
    end
    for key, list in pairs(kept) do entry[key] = list end
  end
end

--- A panel without lines, both axes logarithmic.
local function empty_panel(title, axis, label)
  local x = plot_points.axis_label { axis }
  x.scale = "log"
  return { kind = "lines", title = title, x = x, series = {}, references = {}, y = { label = label, scale = "log" } }
end

local function largest_of(entry)
  local largest = 0
  for _, y in ipairs(entry.y) do largest = math.max(largest, y ~= native.null and y or 0) end
  return largest
end

local function time_panel(group, axis)
  local panel = empty_panel("time, " .. group.name, axis, "fastest time in a step")
  panel.y.unit = "ms"
  local lines, largest = {}, 0
  for _, name in ipairs(shown) do
    local entry, curve = line_of(group.points, axis, name, function(point) return scaling.figures(point)[name] end)
    if entry then
      largest = math.max(largest, largest_of(entry))
      lines[#lines + 1] = { entry = entry, curve = curve }
    end
  end
  for _, line in ipairs(lines) do
    -- A phase that is only passed through would stretch the axis by decades.
    if largest_of(line.entry) > 1e-3 * largest then
      panel.series[#panel.series + 1] = line.entry
      add_fit(panel, line.entry.name, line.curve, 1)
    end
  end
  mark_failures_once(panel)
  return #panel.series > 0 and panel or nil
end

local function memory_panel(groups, axis)
  local panel = empty_panel("peak memory", axis, "peak memory")
  local curves, largest = {}, 0
  for _, group in ipairs(groups) do
    local entry, curve = line_of(group.points, axis, group.name, plot_points.peak_bytes)
    if entry then
      panel.series[#panel.series + 1] = entry
      curves[group.name] = curve
      largest = math.max(largest, largest_of(entry))
    end
  end
  if #panel.series == 0 then return nil end
  local unit, factor = plot_spec.memory_unit(largest)
  panel.y.unit = unit
  plot_spec.scale(panel.series, factor)
  for _, entry in ipairs(panel.series) do add_fit(panel, entry.name, curves[entry.name], factor) end
  return panel
end

return { scaling = function(results, options)
  local axis = options.axis or plot_points.growing_axis(results, "seq_length", "image_size")
  if not axis then return nil, "needs points of several sequence lengths" end
  local groups, panels = plot_spec.groups(results, plot_points.other_axes(results, axis), axis), {}
  for _, group in ipairs(groups) do
    local panel = #panels < 11 and time_panel(group, axis)
    if panel then panels[#panels + 1] = panel end
  end
  local memory = memory_panel(groups, axis)
  if memory then panels[#panels + 1] = memory end
  if #panels == 0 then return nil, "needs at least two good points of different length with times of phases" end
  local label, has_fit = plot_points.axis_label({ axis }).label, false
  for _, panel in ipairs(panels) do
    if #panel.references > 0 then has_fit = true else panel.references = nil end
  end
  return plot_spec.spec("Growth with " .. label, results, panels,
    { columns = #panels > 3 and 2 or nil,
      note = has_fit and ("Dashed: the best of T^p, a + bT and a + bT^2, T the %s; beside it p of y ~ T^p."):format(label)
        or "No fit: " .. scaling.missing_exponent(2) .. "." })
end }
