--- Figure: the layers whose per-sample norms take longest, at the longest sequence of every mode (document 001).
local layer_norms = require "moonshard.analyze.layer_norms"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

--- Without the part before the first dot that all names begin with ("model.").
local function without_common_start(names)
  local start = names[1] and names[1]:match("^[^.]+%.")
  for _, name in ipairs(names) do
    if not start or name:sub(1, #start) ~= start then return names end
  end
  local short = {}
  for i, name in ipairs(names) do short[i] = name:sub(#start + 1) end
  return short
end

--- The point of each group that is largest along the growing axis and has layers.
local function largest_points(results, axis)
  local chosen = {}
  for _, group in ipairs(plot_spec.groups(results, axis and plot_points.other_axes(results, axis) or plot_points.varying(results))) do
    local best
    for _, point in ipairs(group.points) do
      local size = axis and tonumber(point.options[axis]) or 0
      if point.status == "ok" and layer_norms.slowest(point)[1] and (not best or size > best.size) then
        best = { name = group.name, point = point, size = size }
      end
    end
    chosen[#chosen + 1] = best
  end
  return chosen
end

return function(results, options)
  local most = options and options.top or 20
  local axis = plot_points.growing_axis(results, "seq_length", "image_size", "batch_size")
  local panels, covered, total, rows = {}, 0, 0, 0
  for _, chosen in ipairs(largest_points(results, axis)) do
    local layers, sum = layer_norms.slowest(chosen.point)
    local unit, factor = plot_spec.time_unit(layers[1].norm_ms)
    local entry = { name = "", color = 3, x = {}, y = {}, labels = {} }
    local names = {}
    for i = 1, math.min(most, #layers) do
      names[i], entry.x[i], entry.y[i] = layers[i].layer, i - 1, layers[i].norm_ms * factor
      entry.labels[i] = tostring(layers[i].kind or "")
      covered = covered + layers[i].norm_ms
    end
    total, rows = total + sum, math.max(rows, #names)
    local title = axis and ("%s, %s"):format(chosen.name, plot_points.name(chosen.point, { axis }, true)) or chosen.name
    if #panels < 6 then
      panels[#panels + 1] = { kind = "bars", horizontal = true, title = title,
        x = { categories = without_common_start(names) },
        y = { label = "norm time per step", unit = unit }, series = { entry } }
    end
  end
  if #panels == 0 then return nil, "needs points with status ok and times of layers (profile = layers)" end
  return plot_spec.spec(plot_spec.title("Per-sample norms by layer", results), panels, {
    width = #panels == 1 and 900 or nil, columns = #panels > 2 and 2 or nil,
    height = math.max(320, 150 + 24 * rows) * (#panels > 2 and math.ceil(#panels / 2) * 0.9 or 1),
    note = ("The %d slowest layers of each; together %.0f %% of all norm time."):format(rows, total > 0 and 100 * covered / total or 100),
  })
end
