--- The points of `plan_points.lua --set heldout`: models, engines, shapes, wrappers, offload, checkpointing, adapters and accumulation that
-- neither the calibration nor the making of the model of costs has seen. Each list is crossed with nothing: one row is one point.
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."
local predict = dofile(here .. "/plan_prediction.lua")

local M = {}

local llama, qwen, qwen2, big = "llama3.2-1b", "qwen1.5-1.8b", "qwen2.5-1.5b", "llama3.1-8b"
local gemma, vault, dit, dit_l = "gemma-3-1b", "vaultgemma-1b", "dit-xl/2", "dit-l/8"

--- { model, mode, batch, length, other options }
local rows = {
  -- One GPU, decoders, plain and private: every engine, shapes between those that were measured.
  { llama, "none", 3, 768 }, { llama, "none", 6, 1536 }, { llama, "none", 12, 640 }, { llama, "none", 24, 256 },
  { llama, "bookkeeping", 3, 768 }, { llama, "bookkeeping", 6, 1536 }, { llama, "bookkeeping", 12, 384 },
  { llama, "flash_bookkeeping", 6, 768 }, { llama, "flash_bookkeeping", 3, 3072 }, { llama, "flash_bookkeeping", 12, 512 },
  { llama, "flash", 3, 1536 }, { llama, "flash", 6, 768 }, { llama, "ghost", 6, 640 }, { llama, "ghost", 3, 1280 },
  { llama, "auto", 6, 768 }, { llama, "auto", 2, 3072 }, { llama, "auto", 16, 384 }, { llama, "materialize", 2, 768 },
  { qwen, "none", 3, 1536 }, { qwen, "none", 6, 640 }, { qwen, "bookkeeping", 3, 768 }, { qwen, "flash_bookkeeping", 3, 1536 },
  { qwen, "auto", 3, 1280 }, { qwen, "auto", 8, 512 }, { qwen, "flash", 2, 1536 }, { qwen, "ghost", 3, 640 },
  { qwen2, "none", 3, 1280 }, { qwen2, "none", 6, 2048 }, { qwen2, "bookkeeping", 3, 1536 }, { qwen2, "auto", 4, 1280 },
  { qwen2, "flash_bookkeeping", 6, 768 }, { qwen2, "flash", 3, 1024 },
  { gemma, "none", 4, 1024 }, { gemma, "bookkeeping", 4, 768 }, { gemma, "auto", 4, 1024 },
  { vault, "none", 4, 1024 }, { vault, "bookkeeping", 4, 1024 }, { vault, "flash_bookkeeping", 6, 768 }, { vault, "auto", 2, 1536 },
  { big, "none", 2, 1024, { num_layers = 6, task = "classify" } }, { big, "bookkeeping", 2, 1536, { num_layers = 6, task = "classify" } },
  { big, "auto", 4, 768, { num_layers = 6, task = "classify" } }, { big, "flash_bookkeeping", 4, 512, { num_layers = 10 } },
  { big, "none", 1, 2048, { dtype = "bfloat16", optimizer = "sgd" } },
  { big, "bookkeeping", 2, 768, { dtype = "bfloat16", optimizer = "sgd" } },
  -- Without a wrapper, and other dtypes and optimizers.
  { llama, "none", 4, 768, { parallel = "none" } }, { llama, "bookkeeping", 4, 768, { parallel = "none" } },
  { qwen, "none", 4, 512, { dtype = "bfloat16" } }, { llama, "none", 4, 512, { param_dtype = "float32" } },
  { llama, "bookkeeping", 2, 512, { param_dtype = "float32" } }, { llama, "none", 6, 768, { optimizer = "sgd", momentum = 0.9 } },
  { llama, "bookkeeping", 6, 768, { optimizer = "sgd" } }, { qwen2, "none", 4, 768, { state_dtype = "bfloat16" } },
  -- Several ranks, one of which runs.
  { llama, "none", 6, 768, { world = "fake:2" } }, { llama, "none", 3, 1536, { world = "fake:8" } },
  { llama, "none", 6, 768, { world = "fake:4", sharding = "zero2" } }, { qwen, "none", 3, 1536, { world = "fake:4" } },
  { qwen2, "none", 3, 1280, { world = "fake:8", sharding = "zero2" } }, { llama, "none", 3, 768, { world = "fake:2", parallel = "ddp" } },
  { qwen, "none", 3, 768, { world = "fake:8", parallel = "ddp" } }, { llama, "none", 6, 768, { world = "fake:8", replicate = 2 } },
  { llama, "none", 6, 768, { world = "fake:4", wrap = "size" } },
  { llama, "none", 6, 768, { world = "fake:4", limit_all_gathers = false } },
  { llama, "none", 6, 768, { world = "fake:4", backward_prefetch = "none", forward_prefetch = false } },
  { llama, "none", 6, 768, { world = "fake:4", link = "pcie5" } },
  { llama, "none", 3, 1536, { world = "fake:2", sharding = "zero2_replicated" } },
  { llama, "bookkeeping", 6, 768, { world = "fake:4" } }, { llama, "flash_bookkeeping", 3, 1536, { world = "fake:8" } },
  { llama, "auto", 6, 768, { world = "fake:4" } }, { qwen, "auto", 3, 1024, { world = "fake:2" } },
  { qwen, "bookkeeping", 3, 1280, { world = "fake:2", sharding = "zero2" } }, { qwen2, "flash", 3, 1024, { world = "fake:4" } },
  { llama, "bookkeeping", 3, 768, { world = "fake:4", parallel = "ddp" } }, { llama, "ghost", 4, 640, { world = "fake:2" } },
  { big, "none", 2, 1536, { world = "fake:8" } }, { big, "bookkeeping", 2, 1024, { world = "fake:8" } },
  { big, "none", 4, 1536, { world = "fake:8", checkpointing = "block" } }, { big, "auto", 2, 768, { world = "fake:8" } },
  { big, "flash", 2, 768, { world = "fake:8", optimizer = "sgd" } },
  -- Recomputed blocks.
  { llama, "none", 12, 1536, { checkpointing = "block" } }, { llama, "bookkeeping", 6, 1536, { checkpointing = "block" } },
  { qwen, "none", 6, 1536, { checkpointing = "keep_attention" } }, { qwen2, "bookkeeping", 6, 1024, { checkpointing = "keep_attention" } },
  { llama, "none", 8, 3072, { checkpointing = "block", world = "fake:4" } },
  { qwen, "none", 6, 1280, { checkpointing = "block", checkpoint_every = 2 } },
  { llama, "flash", 4, 1536, { checkpointing = "block" } },
  -- Accumulation.
  { llama, "none", 3, 1024, { grad_accum = 3 } }, { llama, "bookkeeping", 3, 768, { grad_accum = 4 } },
  { qwen, "none", 3, 768, { grad_accum = 2, world = "fake:4" } },
  { llama, "none", 3, 1024, { grad_accum = 4, world = "fake:4", no_sync = true } },
  { llama, "flash_bookkeeping", 3, 1024, { grad_accum = 2, world = "fake:2" } },
  -- Adapters.
  { llama, "none", 6, 768, { lora_rank = 8 } }, { llama, "bookkeeping", 6, 768, { lora_rank = 8 } },
  { qwen, "bookkeeping", 3, 1024, { lora_rank = 32 } },
  { qwen, "none", 3, 1536, { lora_rank = 64 } }, { llama, "flash_bookkeeping", 3, 1536, { lora_rank = 16 } },
  { big, "bookkeeping", 2, 768, { lora_rank = 16, dtype = "bfloat16" } }, { big, "none", 4, 768, { lora_rank = 8, dtype = "bfloat16" } },
  { llama, "bookkeeping", 4, 768, { lora_rank = 16, world = "fake:4" } },
  -- Images.
  { dit, "none", 24, 256 }, { dit, "bookkeeping", 24, 256 }, { dit, "none", 8, 256, { parallel = "none" } }, { dit, "flash", 16, 256 },
  { dit, "auto", 24, 256 }, { dit, "flash_bookkeeping", 12, 256, { world = "fake:4" } },
  { dit, "none", 48, 256, { checkpointing = "block" } },
  { dit_l, "none", 3, 1024, { param_dtype = "float32", optimizer = "adam", parallel = "none" } },
  { dit_l, "bookkeeping", 3, 1024, { param_dtype = "float32", optimizer = "adam" } }, { dit_l, "none", 8, 1024 },
  { dit_l, "flash", 6, 1024 },
  -- Parts in host memory.
  { llama, "none", 3, 1536, { cpu_offload = true } }, { llama, "bookkeeping", 3, 768, { cpu_offload = true, world = "fake:2" } },
  { qwen2, "none", 3, 768, { cpu_offload = true, world = "fake:4" } },
  { llama, "flash_bookkeeping", 2, 1536, { cpu_offload = true, optimizer = "sgd" } },
}

--- At the edge of the memory: the largest batch that the plan says fits. Whether it does is the question.
local edges = {
  { llama, "none", 1024 }, { qwen, "bookkeeping", 1024 }, { llama, "auto", 768 }, { qwen2, "flash", 1536 },
  { gemma, "none", 1024, { checkpointing = "block" } }, { dit, "bookkeeping", 256 }, { big, "none", 2048, { world = "fake:8" } },
  { big, "bookkeeping", 1024, { lora_rank = 16, dtype = "bfloat16" } },
}

local function point_of(row, batch, length, extra)
  local point = { model = row[1], mode = row[2], batch_size = batch, seq_length = length }
  if row[1] == dit or row[1] == dit_l then point.task = "denoise" end
  for name, value in pairs(extra or {}) do point[name] = value end
  return point
end

--- The largest batch that is predicted to fit.
function M.largest(point, complete, machine)
  local function fits(size) return predict(complete(point, size), machine).fits end
  local low, high = 1, 4096
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if fits(middle) then low = middle else high = middle end
  end
  return low
end

--- All points of the set.
-- @tparam function complete (point, batch_size) -> all options of the point
-- @tparam string machine file of the profile
function M.points(complete, machine)
  local points = {}
  for i, row in ipairs(rows) do points[i] = point_of(row, row[3], row[4], row[5]) end
  for _, row in ipairs(edges) do
    local point = point_of(row, 1, row[3], row[4])
    point.batch_size = M.largest(point, complete, machine)
    points[#points + 1] = point
  end
  return points, #rows
end

return M
