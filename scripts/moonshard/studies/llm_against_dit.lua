--- A language model against a diffusion transformer (document 004's last table): the same engines, as many tokens in a step. The
-- document's language model has one sequence of 8192 tokens; eight images of 1024 patches are as many.
local lists = require "moonshard.lists"
local plot_points = require "moonshard.plot_points"
local statistics = require "moonshard.analyze.statistics"
local text_table = require "moonshard.text_table"

local M = {}

--- A plan over both models, which advance together with their own options.
local function plan_of(shared, experiments, llm, dit)
  local zip = {}
  for _, key in ipairs { "model", "task", "batch_size", "seq_length", "num_layers", "image_size" } do
    if llm[key] ~= nil or dit[key] ~= nil then zip[key] = { llm[key] or 0, dit[key] or 0 } end
  end
  return lists.merged(shared, { optimizer = "adam", warmup = 2, grid = { mode = experiments }, zip = zip })
end

--- Full size: Llama 3.2 1B with 1 x 8192 tokens, DiT-L/8 with 8 x 1024 patches.
function M.plan(experiments)
  return plan_of({ iters = 5, compile = "no" }, experiments, { model = "llama3.2-1b", task = "lm", batch_size = 1, seq_length = 8192 },
    { model = "dit-l/8", task = "denoise", batch_size = 8 })
end

--- The same question on a CPU: 256 tokens in a step.
function M.tiny_plan(experiments)
  return plan_of({ iters = 3, threads = 2 }, experiments, { model = "llama3-tiny", task = "lm", batch_size = 1, seq_length = 256 },
    { model = "dit-tiny", task = "denoise", batch_size = 4 })
end

local function row_of(name, llm, dit, read, shown)
  local a, b = llm and read(llm), dit and read(dit)
  return { name, a and shown(a) or nil, b and shown(b) or nil, a and b and b ~= 0 and ("%.2fx"):format(a / b) or nil }
end

--- Both models side by side, engine by engine: tokens in a step, time, memory, and what the engine adds to plain training.
-- @tparam Runs results
-- @treturn Table nil where the results have only one of the two
function M.table(results)
  local by_mode, order, has = {}, {}, {}
  for _, point in ipairs(results:select("ok")) do
    local task = point.options.task
    local kind = task == "denoise" and "dit" or (task == "lm" or task == "classify") and "llm" or nil
    if kind then
      local mode = tostring(plot_points.axis_value(point, "mode"))
      if not by_mode[mode] then order[#order + 1] = mode end
      by_mode[mode] = by_mode[mode] or {}
      by_mode[mode][kind], has[kind] = by_mode[mode][kind] or point, true
    end
  end
  if not has.dit or not has.llm then return nil end
  local rows = {}
  local plain = by_mode[order[1]] or {}
  local function tokens(point)
    return (plot_points.number(point.options.batch_size) or 0) * (plot_points.number(point.options.seq_length) or 0)
  end
  local function whole(value) return ("%.0f"):format(value) end
  rows[1] = row_of("tokens in a step", plain.llm, plain.dit, tokens, whole)
  rows[2] = row_of("parameters", plain.llm, plain.dit, function(point) return plot_points.metric(point, "num_parameters") end, whole)
  for _, mode in ipairs(order) do
    local llm, dit = by_mode[mode].llm, by_mode[mode].dit
    rows[#rows + 1] = row_of(mode .. ": median ms", llm, dit, plot_points.step_ms, text_table.cell_text)
    rows[#rows + 1] = row_of(mode .. ": peak GiB", llm, dit, function(point)
      local bytes = plot_points.peak_bytes(point)
      return bytes and bytes / 2 ^ 30
    end, function(value) return ("%.2f"):format(value) end)
    if mode ~= order[1] and plain.llm and plain.dit and llm and dit then
      local function times(point, partner) return statistics.ratio_text(point, partner) end
      rows[#rows + 1] = { mode .. ": time x of " .. order[1], times(llm, plain.llm), times(dit, plain.dit), nil }
    end
  end
  return text_table.new { title = "A language model against a diffusion transformer, as many tokens in a step", rows = rows,
    columns = { "", "LLM, causal", "DiT, bidirectional", "LLM / DiT" } }
end

return M
