--- Question: what do short steps need that no calibration has seen? Points for scripts/bench/plan_check.lua, on a GPU.
-- Inputs: none (synthetic batches, random weights). Outputs: a run folder. The first points are the most telling: it may be cut short.
-- Run: moonshard run scripts/bench/plan_points.lua [--set first|heldout|drawn] [--seed N] [--count N] [--edges N] [--out FOLDER]
--      [--first N] [--estimate] [--verbose]
local ms = require "moonshard"
local command_line = require "moonshard.arguments"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."
local predict = dofile(here .. "/plan_prediction.lua")

local given = command_line.parse("plan_points", arg, {
  { name = "set", kind = "text", choices = { "first", "heldout", "drawn" },
    doc = "first: the 30 of examples/results/plan_h200; heldout: a list that nothing was fitted to; drawn: at random" },
  { name = "seed", kind = "int", doc = "of drawn points (1)" },
  { name = "count", kind = "int", doc = "of drawn points (112)" },
  { name = "edges", kind = "int", doc = "of drawn points, so many once more at the edge of memory (8)" },
  { name = "out", kind = "text", doc = "folder for the run folder (results)" },
  { name = "first", kind = "int", doc = "only so many points" },
  { name = "machine", kind = "text", doc = "machine profile for batches at the edge of memory, and for the estimate (that of the H200)" },
  { name = "estimate", kind = "boolean", doc = "print how long it will take, run nothing" },
  { name = "verbose", kind = "boolean", doc = "predictions of every point" },
})

local mixed = { task = "lm", mode = "none", dtype = "float32", param_dtype = "bfloat16", optimizer = "adamw", momentum = 0, grad_accum = 1,
  world = "auto", parallel = "fsdp", sharding = "zero3", wrap = "module", replicate = 1, cpu_offload = false, checkpointing = "none",
  checkpoint_every = 1, lora_rank = 0, num_layers = 0, backward_prefetch = "pre", forward_prefetch = true, limit_all_gathers = true,
  no_sync = false, link = "nvlink", state_dtype = "auto", compile = "auto" }
local machine = given.machine or (here .. "/../moonshard/machines/h200.json")

local llama, qwen, big, dit = "llama3.2-1b", "qwen1.5-1.8b", "llama3.1-8b", "dit-xl/2"
local first_points = {
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

local function complete(point, batch_size)
  local whole = {}
  for name, value in pairs(mixed) do whole[name] = value end
  for name, value in pairs(point) do whole[name] = value end
  if batch_size then whole.batch_size = batch_size end
  if whole.parallel ~= "fsdp" then
    for _, name in ipairs { "sharding", "wrap", "backward_prefetch", "forward_prefetch", "limit_all_gathers" } do
      whole[name] = mixed[name]
    end
  end
  return whole
end

local points, held = first_points, #first_points
if given.set == "heldout" then points, held = dofile(here .. "/plan_heldout.lua").points(complete, machine) end
if given.set == "drawn" then
  local drawn = dofile(here .. "/plan_drawn.lua")
  points = drawn.points(complete, machine, given.seed or 1, given.count or 112)
  held = #points
  for _, edge in ipairs(drawn.edges(points, complete, machine, dofile(here .. "/plan_heldout.lua").largest,
    given.edges or 8)) do
    points[#points + 1] = edge
  end
end

--- Steps of a point, and what a process needs beside them: start, construction, the profiler's step; pages of host memory.
local warmup, iters, start_s, offload_s = 4, 4, 1.9, 14

local function seconds_of(point)
  local plan = predict(complete(point), machine)
  return start_s + (warmup + iters + 1) * plan.step_ms / 1e3 + (point.cpu_offload and offload_s or 0), plan
end

local chosen = {}
local count = math.min(#points, given.first or #points)
local seconds, largest = 0, 0
for i = 1, count do
  local own, plan = seconds_of(points[i])
  seconds, largest = seconds + own, math.max(largest, plan.peak_memory_bytes)
  if given.verbose then
    print(("%6.1f s %6.1f GiB  %s"):format(own, plan.peak_memory_bytes / 2 ^ 30, native.records.to_json_line(points[i])))
  end
  chosen[i] = complete(points[i])
end
print(("%d points (%d at the edge of memory), about %.1f minutes on that machine; the largest needs %.1f GiB"):format(count,
  math.max(0, count - held), seconds / 60, largest / 2 ^ 30))
-- Every point is checked here; nothing runs before.
local sweep = ms.sweep { name = "plan_points", out = given.out, zip = lists.columns(chosen), device = "cuda", warmup = warmup,
  iters = iters, noise_multiplier = 1.0 }
if not given.estimate then sweep:run() end
