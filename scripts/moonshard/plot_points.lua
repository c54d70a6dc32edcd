--- What figures read from points: names, axes, figures with their status. Records may lack any key: everything here
-- returns nil instead of failing.
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}

--- Titles and units of axes; the short word stands in names of several values ("batch 4").
M.axis_words = {
  seq_length = { title = "sequence length", unit = "tokens", short = "%s tokens" },
  batch_size = { title = "batch size", unit = "samples", short = "batch %s" },
  grad_accum = { title = "accumulation steps", short = "accum %s" },
  image_size = { title = "image size", unit = "pixels", short = "%s px" },
  patch_size = { title = "patch size", unit = "pixels", short = "patch %s" },
  num_layers = { title = "layers", short = "%s layers" },
  hidden_dim = { title = "width", short = "width %s" },
  nproc = { title = "ranks", short = "%s ranks" },
  mode = { title = "engine" },
  sharding = { title = "sharding" },
  parallel = { title = "parallel" },
}

-- Options that do not apply to a point that is not sharded.
local only_fsdp = lists.set { "sharding", "wrap", "backward_prefetch", "forward_prefetch", "limit_all_gathers", "cpu_offload" }

--- A finite number, or nil: untrusted records hold texts, nulls and infinities.
function M.number(value)
  if type(value) ~= "number" or value ~= value or value >= math.huge or value <= -math.huge then return nil end
  return value
end

--- A table, or an empty one.
function M.list(value) return type(value) == "table" and value or {} end

--- A part of a point's result by the names on the way to it: a table, an empty one where it is missing.
function M.part(point, ...)
  local part = M.list(point.result)
  for _, name in ipairs { ... } do part = M.list(part[name]) end
  return part
end

--- A number of a point's metrics, or nil.
function M.metric(point, key) return M.number(M.list(point.metrics)[key]) end

--- Peak memory in bytes; the profiling suites' own files have it in MB only.
function M.peak_bytes(point)
  local mb = M.metric(point, "peak_memory_mb")
  return M.metric(point, "peak_memory_bytes") or mb and mb * 2 ^ 20
end

--- Median step time in ms, or the mean where no median was written.
function M.step_ms(point) return M.metric(point, "median_time_ms") or M.metric(point, "avg_time_ms") end

--- The value of an axis in the words of the sweep's script ("no_dp"), else the effective one: 0 asks for the model's own.
function M.axis_value(point, axis)
  local asked = M.list(point.asked)[axis]
  if asked ~= nil and asked ~= 0 and type(asked) ~= "userdata" and type(asked) ~= "table" then return asked end
  return M.list(point.options)[axis]
end

-- How many different points these axes tell apart.
local function count_told(results, axes)
  local seen, count = {}, 0
  for _, point in ipairs(results.points) do
    local parts = lists.map(axes, function(axis) return tostring(M.axis_value(point, axis)) end)
    local key = table.concat(parts, "\0")
    if not seen[key] then seen[key], count = true, count + 1 end
  end
  return count
end

-- Never dropped: what figures are about.
local always_told = lists.set { "mode", "model", "sharding", "parallel", "batch_size", "seq_length", "grad_accum" }

--- Axes with more than one value, in the sweep's order, without those that follow from the others (a budget that only one
-- engine has): the last of a sweep matter least. The viewer's rule, too (viewer/widgets/axis_names.cpp).
function M.varying(results)
  local axes = lists.select(M.list(results.axes), function(axis)
    local first = tostring(M.axis_value(results.points[1] or {}, axis))
    for _, point in ipairs(results.points) do
      if tostring(M.axis_value(point, axis)) ~= first then return true end
    end
  end)
  local told = count_told(results, axes)
  for at = #axes, 1, -1 do
    if not always_told[axes[at]] then
      local rest = lists.select(axes, function(axis) return axis ~= axes[at] end)
      if count_told(results, rest) == told then axes = rest end
    end
  end
  return axes
end

--- The axis whose values are series: engines, ways to shard, or the first one of words.
-- @tparam[opt] table options series = name of an axis
function M.series_axis(results, options)
  if options and options.series then return options.series end
  local axis = M.growing_axis(results, "mode", "sharding", "parallel")
  if axis then return axis end
  for _, each in ipairs(M.varying(results)) do
    if type(M.axis_value(results.points[1], each)) ~= "number" then return each end
  end
  return "mode"
end

--- The first of these axes that varies; nil when none does.
function M.growing_axis(results, ...)
  local axes = M.varying(results)
  for _, axis in ipairs { ... } do
    if lists.contains(axes, axis) then return axis end
  end
end

--- Varying axes besides those given, without those that follow from the model: in a comparison of models, each with its own batch.
function M.other_axes(results, ...)
  local given = { ... }
  local axes = lists.select(M.varying(results), function(axis) return not lists.contains(given, axis) end)
  if not lists.contains(axes, "model") then return axes end
  local models = count_told(results, { "model" })
  return lists.select(axes, function(axis) return axis == "model" or count_told(results, { "model", axis }) > models end)
end

local function word(axis, value, alone)
  if value == nil then return nil end
  if type(value) == "boolean" then return value and axis:gsub("_", " ") or nil end
  -- Among other words a bare "none" could be of any of them.
  if value == "none" and not alone and axis ~= "mode" and axis ~= "parallel" then return "no " .. axis:gsub("_", " ") end
  local words = M.axis_words[axis]
  if alone or type(value) == "string" and not (words and words.short) then return tostring(value) end
  if words and words.short then return words.short:format(tostring(value)) end
  return ("%s %s"):format(axis:gsub("_", " "), tostring(value))
end

--- "1024" for one axis, "batch 4, accum 2" for several, the model's name for none.
-- @tparam[opt] boolean spell units even for one axis
function M.name(point, axes, spell)
  local parts = {}
  local parallel = M.list(point.options).parallel
  local unsharded = type(parallel) == "string" and parallel ~= "fsdp"
  for _, axis in ipairs(axes) do
    local unused = unsharded and only_fsdp[axis] or axis == "min_num_params" and M.list(point.options).wrap ~= "size"
    if not unused then
      parts[#parts + 1] = word(axis, M.axis_value(point, axis), #axes == 1 and not spell)
    end
  end
  if #parts > 0 then return table.concat(parts, ", ") end
  if #axes > 0 then return "default" end
  return tostring(M.list(point.options).model or "model")
end

--- Label and unit of a category axis made of these axes.
function M.axis_label(axes)
  if #axes == 0 then return { label = "model" } end
  if #axes > 3 then return { label = "configuration" } end
  local titles = lists.map(axes, function(axis) return M.axis_words[axis] and M.axis_words[axis].title or (axis:gsub("_", " ")) end)
  local words = #axes == 1 and M.axis_words[axes[1]]
  return { label = table.concat(titles, ", "), unit = words and words.unit or nil }
end

--- The number of ranks that a point's world only models; nil where all of its ranks ran.
function M.modelled_ranks(point)
  local world = M.list(point.options).world
  return tonumber(type(world) == "string" and (world:match("^fake:(%d+)$") or world:match("^modelled:(%d+)")) or nil)
end

--- What of a point is modelled: "communication" of one rank that ran (world = fake:N), "all" of a simulated run (ms.plan); nil: nothing.
function M.modelled_part(point)
  if not M.modelled_ranks(point) then return nil end
  return M.list(point.options).world:find "^modelled:" and "all" or "communication"
end

local function is_simulated(point) return M.modelled_part(point) == "all" end

--- How many ranks a point has: of its record, else of what was asked for, so that a point that failed has them, too.
function M.ranks(point)
  local options = M.list(point.options)
  return M.number(M.part(point, "sharding").world) or M.modelled_ranks(point) or math.max(M.number(options.nproc) or 1, 1)
end

--- Whether some of the points ran in a modelled world.
function M.is_modelled(results)
  for _, point in ipairs(results.points) do
    if M.modelled_ranks(point) then return true end
  end
  return false
end

--- What is modelled in these results, in one sentence; nil where nothing is.
function M.modelled_note(results)
  local simulated = lists.select(results.points, is_simulated)
  if #simulated > 0 then
    return ("Modelled: %s simulated by ms.plan; every figure is a prediction, nothing was measured."):format(
      #simulated == #results.points and "all points were" or ("%d of %d points were"):format(#simulated, #results.points))
  end
  local modelled = lists.select(results.points, M.modelled_ranks)
  if #modelled == 0 then return nil end
  local links = lists.unique(lists.map(modelled, function(point) return tostring(M.list(point.options).link or "unknown") end))
  local ranks = lists.unique(lists.map(modelled, function(point) return tostring(M.modelled_ranks(point)) end))
  return ("Modelled: %s ran as one rank of %s; memory and computation are measured, times of communication are modelled from "
    .. "link = %s."):format(#modelled == #results.points and "all points" or ("%d of %d points"):format(#modelled, #results.points),
    table.concat(ranks, " or "), table.concat(links, ", "))
end

--- "llama3-tiny, batch 2, 64 tokens, fsdp on 2 ranks": what all points share, for titles.
function M.subject(results)
  local varies, options = lists.set(M.varying(results)), M.list(results.points[1] and results.points[1].options)
  local parts = {}
  if options.model ~= nil and not varies.model then parts[1] = tostring(options.model) end
  for _, axis in ipairs { "batch_size", "seq_length" } do
    local value = M.number(options[axis])
    local is_text = axis ~= "seq_length" or options.task == nil or options.task == "classify" or options.task == "lm"
    if value and value > 0 and is_text and not varies[axis] then parts[#parts + 1] = word(axis, value) end
  end
  local ranks, modelled = M.number(options.nproc), results.points[1] and M.modelled_ranks(results.points[1])
  local parallel = not varies.parallel and options.parallel
  if type(parallel) == "string" and parallel ~= "none" then
    parts[#parts + 1] = modelled and is_simulated(results.points[1]) and parallel
      or modelled and ("%s, one rank of %d"):format(parallel, modelled)
      or ranks and ranks > 1 and ("%s on %d ranks"):format(parallel, ranks) or parallel
  end
  if #lists.select(results.points, is_simulated) > 0 then
    parts[#parts + 1] = "modelled"
  elseif M.is_modelled(results) then
    parts[#parts + 1] = "communication modelled"
  end
  if type(options.device) == "string" and not varies.device and options.device ~= "auto" then
    parts[#parts + 1] = options.device
  end
  return table.concat(parts, ", ")
end

--- First and third quartile of a point's step times; nil where fewer than two were kept.
function M.time_quartiles(point)
  local time, samples = M.part(point, "time"), {}
  for _, sample in ipairs(M.list(time.samples_ms)) do samples[#samples + 1] = M.number(sample) end
  if #samples >= 2 then return unpack(native.analysis.quartiles(samples)) end
  local step = M.list(time.step_ms)
  local median, iqr = M.number(step.median), M.number(step.iqr)
  if median and iqr and (M.number(step.count) or 2) >= 2 then return median - iqr / 2, median + iqr / 2 end
end

--- Median milliseconds of one phase.
function M.phase_ms(point, phase)
  return M.number(M.part(point, "time", "phases_ms", phase).median)
end

--- Phases that any of the points has, in the order of a step; others in the order of their record, then by name.
function M.phases(points)
  local present, names = {}, {}
  for _, point in ipairs(points) do
    for name in pairs(M.part(point, "time", "phases_ms")) do
      if type(name) == "string" then present[name] = true end
    end
  end
  for _, point in ipairs(points) do
    lists.extend(names, lists.select(M.part(point, "time", "phase_order"), function(name) return present[name] end))
  end
  return native.analysis.phases_in_order(lists.extend(names, lists.keys(present)))
end

--- Owners of memory in the order they are stacked, memory without an owner on top.
M.owners_in_order = native.analysis.owners_in_order

--- Names as they are shown: without underscores, matrices in their own spelling.
function M.shown(name)
  return (tostring(name):gsub("_", " "):gsub("ggt$", "ggT"):gsub("aat$", "aaT"))
end

return M
