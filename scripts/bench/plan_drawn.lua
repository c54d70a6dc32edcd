--- The points of `plan_points.lua --set drawn`: options drawn at random from a seed, so that nobody has chosen them. A seed that was never
-- used gives points that neither the calibration nor the making of the model of costs has seen.
local native = require "moonshard.native"
local lists = require "moonshard.lists"
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."
local predict = dofile(here .. "/plan_prediction.lua")

local M = {}

--- One of the values; each stands behind its weight.
local function pick(weighted)
  local total = 0
  for i = 1, #weighted, 2 do total = total + weighted[i] end
  local left = math.random() * total
  for i = 1, #weighted, 2 do
    left = left - weighted[i]
    if left < 0 then return weighted[i + 1] end
  end
  return weighted[#weighted]
end

local images = { ["dit-xl/2"] = 256, ["dit-l/8"] = 1024 }
local lengths = { 1, 256, 1, 384, 2, 512, 1, 640, 2, 768, 1, 896, 3, 1024, 1, 1280, 2, 1536, 2, 2048, 1, 2560, 1, 3072, 1, 4096 }
local dtypes = { 16, { "float32", "bfloat16" }, 2, { "bfloat16", "bfloat16" }, 1, { "float32", "float32" } }
local optimizers = { 15, { "adamw", 0 }, 3, { "sgd", 0 }, 1, { "sgd", 0.9 }, 1, { "adam", 0 } }

local function draw_parallel(point)
  local kind = pick { 9, "one", 7, "ranks", 2, "none", 2, "ddp" }
  if kind == "none" then point.parallel = "none" end
  if kind == "ddp" then point.parallel = "ddp" end
  if kind == "one" or kind == "none" then return end
  point.world = "fake:" .. pick { 3, 2, 3, 4, 3, 8 }
  point.link = pick { 8, "nvlink", 1, "pcie5" }
  if kind == "ddp" then return end
  point.sharding = pick { 7, "zero3", 2, "zero2", 1, "zero2_replicated" }
  point.wrap = pick { 8, "module", 1, "size", 1, "none" }
  if point.world ~= "fake:2" then point.replicate = pick { 8, 1, 1, 2 } end
  point.limit_all_gathers = pick { 9, true, 1, false }
  if pick { 9, false, 1, true } then point.backward_prefetch, point.forward_prefetch = "none", false end
end

local function draw()
  local model = pick { 5, "llama3.2-1b", 4, "qwen1.5-1.8b", 4, "qwen2.5-1.5b", 4, "llama3.1-8b", 2, "gemma-3-1b", 2, "vaultgemma-1b",
    3, "dit-xl/2", 2, "dit-l/8" }
  local point = { model = model, seq_length = images[model] or pick(lengths) }
  point.mode = pick { 7, "none", 4, "bookkeeping", 3, "flash_bookkeeping", 4, "auto", 2, "flash", 1, "ghost", 1, "materialize" }
  point.batch_size = math.max(1, math.floor(1500 * 8 ^ math.random() / point.seq_length + 0.5))
  local dtype, optimizer = pick(dtypes), pick(optimizers)
  point.dtype, point.param_dtype, point.optimizer, point.momentum = dtype[1], dtype[2], optimizer[1], optimizer[2]
  draw_parallel(point)
  if images[model] then
    point.task = "denoise"
  else
    point.task = pick { 4, "lm", 1, "classify" }
    if pick { 8, false, 1, true } then point.lora_rank = pick { 1, 8, 2, 16, 1, 32 } end
  end
  if model == "llama3.1-8b" and pick { 3, true, 2, false } then point.num_layers = math.random(4, 14) end
  point.checkpointing = pick { 15, "none", 3, "block", 2, "keep_attention" }
  if pick { 6, false, 1, true } then
    point.grad_accum = math.random(2, 4)
    point.no_sync = point.world ~= nil and pick { 2, false, 1, true }
  end
  if pick { 24, false, 1, true } and point.parallel == nil then point.cpu_offload = true end
  point.compile = pick { 2, "auto", 2, "no", 1, "yes" }
  if point.optimizer ~= "sgd" and pick { 15, false, 1, true } then point.state_dtype = "bfloat16" end
  return point
end

--- What a point is predicted to need; nil where its options contradict each other.
local function prediction(point, complete, machine)
  local is_valid, plan = pcall(predict, complete(point), machine)
  return is_valid and plan or nil
end

--- Points that fit, one of each kind of options, whose steps are short enough to measure many.
-- @tparam function complete (point, batch_size) -> all options of the point
-- @tparam string machine file of the profile
-- @int seed @int count
function M.points(complete, machine, seed, count)
  math.randomseed(seed)
  local points, seen = {}, {}
  while #points < count do
    local point = draw()
    local plan = prediction(point, complete, machine)
    local key = native.records.to_json_line(complete(point))
    if plan and plan.fits and plan.step_ms < 400 and not seen[key] then
      seen[key] = true
      points[#points + 1] = point
    end
  end
  return points
end

--- Points at the edge of memory: the last of the drawn, with the largest batch that the plan says fits.
-- @tparam function largest (point, complete, machine) -> batch
function M.edges(points, complete, machine, largest, count)
  local chosen = lists.select(points, function(point) return not point.cpu_offload and (point.grad_accum or 1) == 1 end)
  local edges = {}
  for i = #chosen, 1, -1 do
    if #edges == count then break end
    local edge = lists.merged(chosen[i], {})
    edge.batch_size = largest(edge, complete, machine)
    local plan = prediction(edge, complete, machine)
    if plan.step_ms < 4000 then edges[#edges + 1] = edge end
  end
  return edges
end

return M
