--- Figures of bars, one per point: time, memory and communication side by side.
local layer_norms = require "moonshard.analyze.layer_norms"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local overhead = require "moonshard.analyze.overhead"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local M = {}

--- Figure: peak memory of every mode, grouped by the other axes (document 000).
function M.memory_comparison(results, options)
  local panel = plot_spec.grouped(results, { series = options.series, measure = "bytes", label = "peak memory",
    value = plot_points.peak_bytes })
  if not panel then return nil, "needs points with status ok and a peak memory" end
  return plot_spec.spec("Peak memory", results, { panel })
end

--- Figure: median step time of every mode with its spread, grouped by the other axes (document 000).
function M.time_comparison(results, options)
  local panel = plot_spec.grouped(results, { series = options.series, measure = "ms", label = "median step time",
    value = plot_points.step_ms, spread = plot_points.time_quartiles })
  if not panel then return nil, "needs points with status ok and a step time" end
  return plot_spec.spec("Step time", results, { panel }, { note = plot_spec.time_note(results.points) })
end

--- Figure: what the script's own function of a point returned, a panel per number.
function M.own_metrics(results, options)
  local names, panels, axes = {}, {}, plot_points.other_axes(results)
  local series = options.series or plot_points.series_axis(results, options)
  if #axes > 1 and not lists.contains(axes, series) then series = axes[1] end -- all axes are numbers
  for _, point in ipairs(results.points) do
    for _, name in ipairs(outcome.own_metrics(point)) do
      if plot_points.metric(point, name) then names[name] = true end
    end
  end
  for _, name in ipairs(lists.keys(names)) do
    panels[#panels + 1] = plot_spec.grouped(results, { series = series, title = name, label = name, measure = "",
      value = function(point) return plot_points.metric(point, name) end })
  end
  if #panels == 0 then return nil, "needs points of a function of the script (ms.sweep { run = function … }) that returned numbers" end
  return plot_spec.spec("Own metrics", results, panels, { columns = math.min(3, #panels) })
end

--- Figure: communication of a step: time of the collectives, what of it nothing hides, and bytes (document 002).
function M.communication_comparison(results, options)
  local panels = {}
  for _, ask in ipairs {
    { "Time of the collectives", "work", "ms", "comm_work_ms" },
    { "Exposed time", "exposed", "ms", "comm_exposed_ms" },
    { "Bytes", "sent per step", "bytes", "comm_bytes" },
  } do
    panels[#panels + 1] = plot_spec.grouped(results, { series = options.series, title = ask[1], label = ask[2], measure = ask[3],
      value = function(point) return plot_points.metric(point, ask[4]) end })
  end
  if #panels == 0 then return nil, "needs points with status ok and a record of collectives (parallel = ddp or fsdp)" end
  return plot_spec.spec("Communication", results, panels, #panels[1].x.categories > 4
    and { columns = 1, width = 1000, height = 60 + 330 * #panels } or { width = 480 * #panels + 60 })
end

--- Figure: what every mode costs above the baseline with the same other options: memory and time (document 000).
function M.overhead_analysis(results, options)
  local axis, baseline = overhead.baseline_of(results, options)
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
  return plot_spec.spec("Overhead against " .. name, results, { memory, time }, { width = 1200 })
end

--- Figure: variants of an optimisation side by side: step time, peak memory and exposed communication (document 001).
function M.before_after(results, options)
  local axis = options.axis or plot_points.growing_axis(results, "seq_length", "image_size")
  if #plot_points.other_axes(results, axis) == 0 then return nil, "needs points that differ in more than their size" end
  local function has_figure(value)
    for _, point in ipairs(results.points) do
      if point.status == "ok" and (value(point) or 0) ~= 0 then return true end
    end
  end
  local panels = {}
  for _, ask in ipairs {
    { title = "Step time", measure = "ms", label = "median step time", value = plot_points.step_ms, spread = plot_points.time_quartiles },
    { title = "Peak memory", measure = "bytes", label = "peak memory", value = plot_points.peak_bytes },
    { title = "Exposed communication", measure = "ms", label = "exposed communication",
      value = function(point) return plot_points.metric(point, "comm_exposed_ms") end },
  } do
    ask.category_axes = { axis }
    if has_figure(ask.value) then panels[#panels + 1] = plot_spec.grouped(results, ask) end
  end
  if #panels == 0 then return nil, "needs points with status ok and a step time" end
  return plot_spec.spec("Before and after", results, panels, { note = plot_spec.time_note(results.points) })
end

local stage_kinds = {
  { "allocated", "allocated_bytes" }, { "max allocated", "max_allocated_bytes" }, { "reserved", "reserved_bytes" },
}
-- What the tutorial prints; other stages are shown when none of these was recorded.
local wanted_stages = { ["after data"] = true, ["after model creation"] = true, ["after warmup"] = true }

local function row_of(point, stage)
  for _, row in ipairs(plot_points.part(point, "memory_stages")) do
    if row.stage == stage and (row.rank == nil or row.rank == 0) then return row end
  end
end

local function stages_of(results)
  local all, known = plot_spec.ordered(), plot_spec.ordered()
  for _, point in ipairs(results.points) do
    for _, row in ipairs(plot_points.part(point, "memory_stages")) do
      if type(row.stage) == "string" then
        all:add(row.stage)
        if wanted_stages[row.stage] then known:add(row.stage) end
      end
    end
  end
  return #known.names > 0 and known.names or all.names
end

-- Many configurations have long names: they stand beside their bars, the stages in one row.
local most_level_names = 4

local function stage_panel(results, stage, names)
  local panel = { kind = "bars", title = stage, horizontal = #names > most_level_names, x = { categories = names },
    y = { label = "memory of rank 0" }, series = {} }
  for k, kind in ipairs(stage_kinds) do
    local entry = { name = kind[1], color = ({ 0, 5, 3 })[k], x = {}, y = {}, status = {}, labels = {} }
    local any = false
    for i, point in ipairs(results.points) do
      local row = row_of(point, stage)
      local bytes = row and plot_points.number(row[kind[2]])
      any = any or bytes ~= nil
      entry.x[i], entry.y[i] = i - 1, bytes or native.null
      entry.status[i] = bytes and "ok" or point.status == "ok" and "no value" or tostring(point.status)
      entry.labels[i] = names[i]
    end
    if any then panel.series[#panel.series + 1] = entry end
  end
  return #panel.series > 0 and panel or nil
end

--- One unit for all panels, so that they can be compared.
local function share_memory_unit(panels)
  local largest = 0
  for _, panel in ipairs(panels) do
    for _, entry in ipairs(panel.series) do
      for _, bytes in ipairs(entry.y) do largest = math.max(largest, plot_points.number(bytes) or 0) end
    end
  end
  local unit, factor = plot_spec.memory_unit(largest)
  for _, panel in ipairs(panels) do
    plot_spec.scale(panel.series, factor)
    panel.y.unit = unit
  end
end

--- Figure: memory at the stages of a run (after data, after model creation, after warm-up): allocated, its maximum and reserved,
-- for every configuration (document 003).
function M.stage_memory(results)
  local axes, panels = plot_points.other_axes(results), {}
  local names = lists.map(results.points, function(point) return plot_points.name(point, axes) end)
  for _, stage in ipairs(stages_of(results)) do
    local panel = stage_panel(results, stage, names)
    if panel and #panels < 12 then panels[#panels + 1] = panel end
  end
  if #panels == 0 then return nil, "needs points with memory at their stages" end
  share_memory_unit(panels)
  local size = { columns = 2, width = 1100, height = 80 + 380 * math.ceil(#panels / 2) }
  if #names > most_level_names then
    size = { columns = math.min(3, #panels), width = 1500, height = 80 + (110 + 62 * #names) * math.ceil(#panels / 3) }
  end
  return plot_spec.spec("Memory by stage", results, panels, size)
end

--- Without the part before the first dot that all names begin with ("model.").
local function without_common_start(names)
  local start = names[1] and names[1]:match("^[^.]+%.")
  for _, name in ipairs(names) do
    if not start or name:sub(1, #start) ~= start then return names end
  end
  return lists.map(names, function(name) return start and name:sub(#start + 1) end)
end

--- The point of each group that is largest along the growing axis and has layers.
local function largest_points(results, axis)
  local chosen = {}
  for _, group in ipairs(plot_spec.groups(results, axis and plot_points.other_axes(results, axis) or plot_points.other_axes(results))) do
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

--- Figure: the layers whose per-sample norms take longest, at the longest sequence of every mode (document 001).
function M.layer_norm_times(results, options)
  local most = options.top or 20
  local axis = plot_points.growing_axis(results, "seq_length", "image_size", "batch_size")
  local panels, covered, total, rows = {}, 0, 0, 0
  for _, chosen in ipairs(largest_points(results, axis)) do
    local layers, sum = layer_norms.slowest(chosen.point)
    local unit, factor = plot_spec.time_unit(layers[1].norm_ms)
    local entry = { name = tostring(chosen.point.options.mode), x = {}, y = {}, labels = {} }  -- the name gives the colour
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
  return plot_spec.spec("Per-sample norms by layer", results, panels, {
    width = #panels == 1 and 900 or nil, columns = #panels > 2 and 2 or nil,
    height = math.max(320, 150 + 24 * rows) * (#panels > 2 and math.ceil(#panels / 2) * 0.9 or 1),
    note = ("The %d slowest layers of each; together %.0f %% of all norm time."):format(rows, total > 0 and 100 * covered / total or 100),
  })
end

return M
