--- Time of per-sample norms by layer, at the longest sequence of every mode (profile = layers or trace).
local plot_points = require "moonshard.plot_points"
local text_table = require "moonshard.text_table"

local M = {}

--- The timed layers of a point, slowest first, and the sum of their times.
-- @treturn {table,...} layer, kind, norm_ms each, and sizes where they were recorded
-- @treturn number
function M.slowest(point)
  local layers, sum = {}, 0
  for _, layer in ipairs(plot_points.part(point, "layers")) do
    local ms = plot_points.number(plot_points.list(layer).norm_ms)
    if ms then
      layers[#layers + 1] = { layer = tostring(layer.layer), kind = layer.kind, norm_ms = ms,
        parameters = plot_points.number(layer.parameters), in_features = plot_points.number(layer.in_features),
        out_features = plot_points.number(layer.out_features),
        tokens = plot_points.number(layer.tokens) }
      sum = sum + ms
    end
  end
  table.sort(layers, function(a, b)
    if a.norm_ms ~= b.norm_ms then return a.norm_ms > b.norm_ms end
    return a.layer < b.layer
  end)
  return layers, sum
end

--- The slowest layers of each mode at its largest point.
-- @tparam Runs results
-- @tparam[opt=8] number most layers per mode
-- @treturn Table; its rows are empty where no layer was timed
function M.analyze(results, most)
  most = most or 8
  local largest, order = {}, {}
  for _, point in ipairs(results:select("ok")) do
    local mode = point.options.mode
    if point.result.layers and (not largest[mode] or point.options.seq_length > largest[mode].options.seq_length) then
      if not largest[mode] then order[#order + 1] = mode end
      largest[mode] = point
    end
  end
  local rows = {}
  for _, mode in ipairs(order) do
    local layers, sum = M.slowest(largest[mode])
    local length = largest[mode].options.seq_length
    for i = 1, math.min(most, #layers) do
      local each = layers[i]
      rows[#rows + 1] = { mode, length, each.layer, each.kind, each.in_features and ("%d x %d"):format(each.in_features, each.out_features),
        each.parameters, each.norm_ms, sum > 0 and 100 * each.norm_ms / sum or nil }
    end
    rows[#rows + 1] = { mode, length, ("all %d layers"):format(#layers), "", nil, nil, sum, sum > 0 and 100 or nil }
  end
  return text_table.new { title = "Norm time by layer at the longest sequence", rows = rows,
    columns = { "mode", "tokens", "layer", "kind", "in x out", "parameters", "norm ms", "%" },
    notes = #rows == 0 and { "No layer was timed: run with profile = layers." } or nil }
end

return M
