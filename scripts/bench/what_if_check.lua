--- Question: does a private step's trace without norms and noise predict the plain step that was measured?
-- Inputs: run folders with traces of private points and the plain point of each shape (scripts/bench/what_if_points.lua). Outputs: a table.
-- Run: moonshard run scripts/bench/what_if_check.lua FOLDER…
local ms = require "moonshard"
local command_line = require "moonshard.arguments"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local given = command_line.parse("what_if_check", arg, {}, { name = "folders", kind = "text", list = true })
if not given.folders then error("what_if_check: expected run folders, got nothing", 0) end

-- What makes two points of one shape.
local shape_keys = { "model", "task", "batch_size", "seq_length", "num_layers", "dtype", "param_dtype", "optimizer", "parallel", "sharding",
  "world", "checkpointing", "cpu_offload", "grad_accum", "lora_rank" }
local function shape_of(options)
  return table.concat(lists.map(shape_keys, function(key) return tostring(options[key]) end), "|")
end

local rows, sizes = {}, { norms = {}, plain = {} }
for _, folder in ipairs(given.folders) do
  local points, plain = ms.load(folder).points, {}
  for _, point in ipairs(points) do
    if point.status == "ok" and point.options.mode == "none" then plain[shape_of(point.options)] = point.metrics.median_time_ms end
  end
  for _, point in ipairs(points) do
    local options, path = point.options, ("%s/points/%s"):format(folder, point.id)
    local measured = plain[shape_of(options)]
    if point.status == "ok" and options.mode ~= "none" and measured and #native.tracing.find(path, 0) > 0 then
      local norms, both = ms.trace.what_if(path, { norms = true }), ms.trace.what_if(path, { plain = true })
      local function error_of(forecast, list)
        local percent = 100 * (forecast.predicted_measured_ms / measured - 1)
        table.insert(list, math.abs(percent))
        return percent
      end
      rows[#rows + 1] = { ("%s B%d T%d"):format(options.model, options.batch_size, options.seq_length), options.mode,
        point.metrics.median_time_ms, norms.step_ms, measured, norms.predicted_measured_ms, error_of(norms, sizes.norms),
        both.predicted_measured_ms, error_of(both, sizes.plain) }
    end
  end
end
if #rows == 0 then error("what_if_check: expected private points with traces beside plain ones of the same shape, got none", 0) end
print(text_table.format({ "shape", "engine", "ms", "traced", "plain ms", "without norms", "%", "without noise, too", "%" }, rows))
for _, name in ipairs { "norms", "plain" } do
  local list = sizes[name]
  table.sort(list)
  local within = #lists.select(list, function(size) return size <= 5 end)
  print(("%s: %d traces, error median %.1f %%, worst %.1f %%; within 5 %%: %d"):format(name, #list, list[math.ceil(#list / 2)], list[#list],
    within))
end
