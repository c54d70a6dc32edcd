--- Figure: who holds the memory at its peak, stacked by owner, one bar per engine (document 004).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local function breakdown(point) return plot_points.list(plot_points.list(plot_points.list(point.result).memory).breakdown) end

local function owners_of(results)
  local names = { "rest" }
  for _, point in ipairs(results.points) do
    for _, row in ipairs(breakdown(point)) do names[#names + 1] = tostring(plot_points.list(row).owner) end
  end
  return plot_points.owners_in_order(names)
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
