--- Question: is a private step without its norms a plain step? Traces of private steps, and the plain step of each shape, on a GPU, for
-- scripts/bench/what_if_check.lua.
-- Inputs: none (synthetic batches, random weights). Outputs: a run folder, each private point with a trace.
-- Run: moonshard run scripts/bench/what_if_points.lua [--out FOLDER] [--first N] [--from N]
local ms = require "moonshard"
local command_line = require "moonshard.arguments"
local lists = require "moonshard.lists"

local given = command_line.parse("what_if_points", arg, {
  { name = "out", kind = "text", doc = "folder for the run folder (results)" },
  { name = "first", kind = "int", doc = "only so many shapes" },
  { name = "from", kind = "int", doc = "the shape to begin with (1)" },
})

local mixed = { task = "lm", dtype = "float32", param_dtype = "bfloat16", optimizer = "adamw", parallel = "fsdp", num_layers = 0 }

-- Steps that the GPU is busy with: a trace slows the host down, and with it steps that wait for the host.
local shapes = {
  { { model = "llama3.2-1b", batch_size = 8, seq_length = 1024 }, { "bookkeeping", "auto", "flash", "ghost" } },
  { { model = "qwen1.5-1.8b", dtype = "bfloat16", batch_size = 4, seq_length = 2048 }, { "bookkeeping", "auto", "flash_bookkeeping" } },
  { { model = "dit-xl/2", task = "denoise", batch_size = 32, seq_length = 256 }, { "bookkeeping", "auto" } },
  { { model = "llama3.1-8b", task = "classify", num_layers = 8, optimizer = "sgd", batch_size = 2, seq_length = 2048 },
    { "materialize", "flash_bookkeeping" } },
  { { model = "llama3.1-8b", task = "classify", num_layers = 8, optimizer = "sgd", batch_size = 2, seq_length = 1024 },
    { "bookkeeping", "auto", "ghost" } },
  { { model = "vaultgemma-1b", batch_size = 8, seq_length = 1024 }, { "bookkeeping", "auto" } },
  -- Of these nothing was known when the rules of a step without norms were written.
  { { model = "qwen2.5-1.5b", batch_size = 6, seq_length = 1024 }, { "bookkeeping", "flash" } },
  { { model = "llama3.2-1b", batch_size = 2, seq_length = 4096 }, { "auto", "flash_bookkeeping" } },
  { { model = "qwen1.5-1.8b", batch_size = 24, seq_length = 256 }, { "bookkeeping", "ghost", "auto" } },
  { { model = "dit-l/8", task = "denoise", batch_size = 16, seq_length = 1024 }, { "bookkeeping", "auto" } },
  { { model = "llama3.1-8b", num_layers = 12, batch_size = 4, seq_length = 1024 }, { "bookkeeping", "flash_bookkeeping" } },
}

local points = {}
local function add(shape, mode)
  points[#points + 1] = lists.merged({ mode = mode, profile = mode == "none" and "layers" or "trace" }, mixed, shape)
end
for i = given.from or 1, math.min(#shapes, given.first or #shapes) do
  local shape, modes = shapes[i][1], shapes[i][2]
  add(shape, "none")
  for _, mode in ipairs(modes) do add(shape, mode) end
end
ms.sweep({ name = "what_if", out = given.out, zip = lists.columns(points), device = "cuda", warmup = 4, iters = 10,
  noise_multiplier = 1.0 }):run()
