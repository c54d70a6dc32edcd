--- Figure: memory at the stages of a run (after data, after model creation, after warm-up): allocated, its maximum and reserved,
-- for every configuration (document 003).
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local kinds = {
  { "allocated", "allocated_bytes" }, { "max allocated", "max_allocated_bytes" }, { "reserved", "reserved_bytes" },
}
-- What the tutorial prints; other stages are shown when none of these was recorded.
local wanted = { ["after data"] = true, ["after model creation"] = true, ["after warmup"] = true }

local function row_of(point, stage)
  for _, row in ipairs(plot_points.list(plot_points.list(point.result).memory_stages)) do
    if row.stage == stage and (row.rank == nil or row.rank == 0) then return row end
  end
end

local function stages_of(results)
  local all, known = plot_spec.ordered(), plot_spec.ordered()
  for _, point in ipairs(results.points) do
    for _, row in ipairs(plot_points.list(plot_points.list(point.result).memory_stages)) do
      if type(row.stage) == "string" then
        all:add(row.stage)
        if wanted[row.stage] then known:add(row.stage) end
      end
    end
  end
  return #known.names > 0 and known.names or all.names
end

local function panel_of(results, stage, names)
  local panel = { kind = "bars", title = stage, x = { categories = names }, y = { label = "memory of rank 0" }, series = {} }
  local largest = 0
  for k, kind in ipairs(kinds) do
    local entry = { name = kind[1], color = ({ 0, 5, 3 })[k], x = {}, y = {}, status = {}, labels = {} }
    local any = false
    for i, point in ipairs(results.points) do
      local row = row_of(point, stage)
      local bytes = row and plot_points.number(row[kind[2]])
      any = any or bytes ~= nil
      largest = math.max(largest, bytes or 0)
      entry.x[i], entry.y[i] = i - 1, bytes or native.null
      entry.status[i] = bytes and "ok" or point.status == "ok" and "no value" or tostring(point.status)
      entry.labels[i] = names[i]
    end
    if any then panel.series[#panel.series + 1] = entry end
  end
  if #panel.series == 0 then return nil end
  local unit, factor = plot_spec.memory_unit(largest)
  plot_spec.scale(panel.series, factor)
  panel.y.unit = unit
  return panel
end

return function(results)
  local axes, names = plot_points.varying(results), {}
  for i, point in ipairs(results.points) do names[i] = plot_points.name(point, axes) end
  local panels = {}
  for _, stage in ipairs(stages_of(results)) do
    local panel = panel_of(results, stage, names)
    if panel and #panels < 12 then panels[#panels + 1] = panel end
  end
  if #panels == 0 then return nil, "needs points with memory at their stages" end
  -- Many configurations need the width.
  local many = #names > 4
  return plot_spec.spec(plot_spec.title("Memory by stage", results), panels,
    { columns = many and 1 or 2, width = 1100, height = many and 80 + 340 * #panels or 80 + 380 * math.ceil(#panels / 2) })
end
