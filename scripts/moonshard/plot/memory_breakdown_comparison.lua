--- Figure: who holds the memory at its peak, stacked by owner, one bar per engine (document 004).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local function breakdown(point) return plot_points.list(plot_points.list(plot_points.list(point.result).memory).breakdown) end

local function owners_of(results)
  local order = plot_spec.ordered()
  local present = {}
  for _, point in ipairs(results.points) do
    for _, row in ipairs(breakdown(point)) do present[tostring(plot_points.list(row).owner)] = true end
  end
  for _, owner in ipairs(plot_points.owners) do
    if present[owner] and owner ~= "rest" then order:add(owner) end
  end
  local others = {}
  for owner in pairs(present) do
    if not order.index[owner] and owner ~= "rest" then others[#others + 1] = owner end
  end
  table.sort(others)
  for _, owner in ipairs(others) do order:add(owner) end
  order:add("rest")
  return order.names
end

local function bytes_of(point, owner)
  for _, row in ipairs(breakdown(point)) do
    if type(row) == "table" and row.owner == owner then return plot_points.number(row.bytes) end
  end
  if owner == "rest" and #breakdown(point) > 0 then
    return plot_points.number(plot_points.list(plot_points.list(point.result).memory).rest_bytes)
  end
end

return function(results)
  local axes = plot_points.varying(results)
  local panel = plot_spec.stacked(results.points, { parts = owners_of(results), value = bytes_of, axes = axes, measure = "bytes",
    label = "memory at the peak", category = function(point) return plot_points.name(point, axes) end })
  if not panel then return nil, "needs points with status ok and memory by owner (profile = phases)" end
  return plot_spec.spec(plot_spec.title("Memory by owner at the peak of a step", results), { panel },
    { width = math.max(900, math.min(1600, 200 + 110 * #results.points)), height = 600 })
end
