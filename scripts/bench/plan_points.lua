--- Question: what do short steps need that no calibration has seen? Points for scripts/bench/plan_check.lua, on a GPU.
-- Inputs: none (synthetic batches, random weights). Outputs: a run folder. The first points are the most telling: it may be cut short.
-- Run: moonshard run scripts/bench/plan_points.lua [--out FOLDER] [--first N] [--device cpu]
local ms = require "moonshard"
local command_line = require "moonshard.arguments"

local given = command_line.parse("plan_points", arg, {
  { name = "out", kind = "text", doc = "folder for the run folder (results)" },
  { name = "first", kind = "int", doc = "only so many points" },
})

local mixed = { task = "lm", mode = "none", dtype = "float32", param_dtype = "bfloat16", optimizer = "adamw", grad_accum = 1,
  world = "auto", parallel = "fsdp", sharding = "zero3", wrap = "module", replicate = 1, cpu_offload = false, checkpointing = "none",
  lora_rank = 0, num_layers = 0 }

local llama, qwen, big, dit = "llama3.2-1b", "qwen1.5-1.8b", "llama3.1-8b", "dit-xl/2"
local points = {
  { model = llama, batch_size = 4, seq_length = 1024, world = "fake:2" },
  { model = llama, mode = "bookkeeping", batch_size = 4, seq_length = 1024, world = "fake:2" },
  { model = llama, mode = "flash", batch_size = 4, seq_length = 1024, world = "fake:2" },
  { model = llama, mode = "flash_bookkeeping", batch_size = 4, seq_length = 2048 },
  { model = big, task = "classify", num_layers = 4, optimizer = "sgd", batch_size = 2, seq_length = 2048 },
  { model = big, mode = "bookkeeping", task = "classify", num_layers = 4, optimizer = "sgd", batch_size = 4, seq_length = 1024 },
  { model = qwen, batch_size = 2, seq_length = 2048, sharding = "zero2", world = "fake:2" },
  { model = qwen, mode = "bookkeeping", batch_size = 4, seq_length = 2048, checkpointing = "block" },
  { model = dit, task = "denoise", batch_size = 16, seq_length = 256, parallel = "none" },
  { model = dit, mode = "bookkeeping", task = "denoise", batch_size = 16, seq_length = 256, parallel = "none" },
  { model = llama, batch_size = 8, seq_length = 2048, checkpointing = "block", world = "fake:2" },
  { model = llama, mode = "bookkeeping", batch_size = 2, seq_length = 1024, cpu_offload = true },
  { model = llama, batch_size = 4, seq_length = 1024, parallel = "ddp", world = "fake:4" },
  { model = llama, batch_size = 4, seq_length = 1024, grad_accum = 2, world = "fake:2" },
  { model = llama, mode = "bookkeeping", batch_size = 4, seq_length = 1024, grad_accum = 2 },
  { model = "qwen2.5-1.5b", batch_size = 2, seq_length = 4096, checkpointing = "keep_attention" },
  { model = llama, batch_size = 4, seq_length = 1024, lora_rank = 16 },
  { model = llama, mode = "bookkeeping", batch_size = 4, seq_length = 1024, lora_rank = 16 },
  { model = "dit-l/8", task = "denoise", dtype = "float32", param_dtype = "float32", optimizer = "adam", batch_size = 4, seq_length = 1024,
    parallel = "none" },
  { model = llama, batch_size = 4, seq_length = 1024, wrap = "none", world = "fake:2" },
  { model = llama, batch_size = 2, seq_length = 4096 },
  { model = big, mode = "ghost", task = "classify", num_layers = 8, optimizer = "sgd", batch_size = 2, seq_length = 1024 },
  { model = qwen, mode = "flash_bookkeeping", dtype = "bfloat16", batch_size = 4, seq_length = 1024 },
  { model = llama, batch_size = 4, seq_length = 1024, sharding = "zero2_replicated", world = "fake:4" },
  { model = llama, batch_size = 4, seq_length = 1024, replicate = 2, world = "fake:4" },
  { model = llama, mode = "auto", batch_size = 4, seq_length = 2048 },
  { model = llama, batch_size = 1, seq_length = 8192 },
  { model = llama, mode = "bookkeeping", batch_size = 16, seq_length = 512, world = "fake:2" },
  { model = qwen, batch_size = 8, seq_length = 1024, sharding = "zero3", world = "fake:8" },
  { model = dit, mode = "flash", task = "denoise", batch_size = 32, seq_length = 256 },
}

local zip = {}
for i = 1, math.min(#points, given.first or #points) do
  local point = {}
  for name, value in pairs(mixed) do point[name] = value end
  for name, value in pairs(points[i]) do point[name] = value end
  if point.parallel ~= "fsdp" then point.sharding, point.wrap = "zero3", "module" end
  for name, value in pairs(point) do
    zip[name] = zip[name] or {}
    zip[name][i] = value
  end
end
ms.sweep { name = "plan_points", out = given.out, zip = zip, device = "cuda", warmup = 3, iters = 6, noise_multiplier = 1.0 }:run()
