--- What the GPU benchmark runs: works, their rows (engines) and goals, and PyTorch's counterpart of each work.
-- A goal is in ms, GiB (gib) or tokens per second; goals in relation to other rows of the work are judged in gpu.lua.
local M = {}

--- One work: options that its rows share, rows by engine, and arguments of torch_peer.py that do the same.
local function work(set, options, rows, torch)
  return { set = set, options = options, rows = rows, torch = torch or {} }
end

local function mixed(options, more)
  local all = { task = "lm", dtype = "float32", param_dtype = "bfloat16", parallel = "fsdp", optimizer = "adamw" }
  for key, value in pairs(options) do all[key] = value end
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

local function peers(name, ...)
  local list = {}
  for _, how in ipairs { ... } do list[#list + 1] = name .. " " .. how end
  return list
end

--- Llama-8B, classification: every one-pass engine beside the plain step. With `tight`, { memory_budget_mb, gib },
--- engine auto once more in less memory; time is not what that row is for.
local function llama(batch, tokens, plain, private, budget_mb, gib, tight)
  local rows = { { mode = "none", goal = { ms = plain } },
    { mode = "auto", memory_budget_mb = budget_mb, profile = tokens == 1024 and "trace" or nil, goal = { ms = private, gib = gib } },
    { mode = "bookkeeping" }, { mode = "flash_bookkeeping", goal = { gib = gib } } }
  if tight then
    rows[#rows + 1] = { mode = "auto", memory_budget_mb = tight.memory_budget_mb, is_tight = true, goal = { gib = tight.gib } }
  end
  return work("llama",
    mixed { model = "llama3.1-8b", task = "classify", optimizer = "sgd", batch_size = batch, seq_length = tokens, num_layers = 32 },
    rows, peers(("llama %d %d 32"):format(tokens, batch), "eager", "compile"))
end

local function small(options, plain, private, torch)
  return work("small", options,
    { { mode = "none", goal = { ms = plain } }, { mode = "auto", goal = { ms = private } }, { mode = "bookkeeping" },
      { mode = "flash_bookkeeping" } }, torch)
end

local function dit_xl(batch, plain, private)
  return small(mixed { model = "dit-xl/2", task = "denoise", batch_size = batch, seq_length = 256, num_layers = 28 }, plain, private)
end

local function engine(mode, seed_ms) return { mode = mode, goal = { ms = seed_ms and seed_ms / 2 } } end

local function dit_l(batch, plain_ms)
  return work("dit", { model = "dit-l/8", task = "denoise", dtype = "float32", param_dtype = "float32", optimizer = "adam",
    parallel = "none", batch_size = batch, seq_length = 1024, num_layers = 24 },
    { { mode = "none", goal = { ms = plain_ms } }, { mode = "auto" } })
end

local function offload(model, layers, plain, private, torch)
  return work("offload", mixed({ model = model, task = "classify", optimizer = "sgd", cpu_offload = true },
    { batch_size = 2, seq_length = 1024, num_layers = layers }),
    { { mode = "none", goal = { ms = plain } }, { mode = "auto", goal = { ms = private } } }, { torch })
end

local function long(tokens)
  return work("long", mixed({ model = "llama3.1-8b", task = "lm", optimizer = "sgd", checkpointing = "keep_attention", head_chunk = 4096 },
    { batch_size = 1, seq_length = tokens, num_layers = 32, warmup = 1, iters = 3 }), { { mode = "none" }, { mode = "auto" } })
end

--- Adapters of rank 16 on all linear layers of blocks, base frozen in bfloat16.
local function lora(tokens, private, gib)
  return work("lora", mixed({ model = "llama3.1-8b", lora_rank = 16, batch_size = 2 }, { seq_length = tokens, num_layers = 32 }),
    { { mode = "none" }, { mode = "auto", goal = { ms = private, gib = gib } }, { mode = "bookkeeping" }, { mode = "flash_bookkeeping" } },
    peers(("llama-lora %d 2 32"):format(tokens), "eager", "compile"))
end

M.works = {
  llama(2, 1024, 163, 155, 24000, 56, { memory_budget_mb = 16000, gib = 48 }),
  llama(2, 2048, 307, 320, 26000, 58), llama(2, 4096, 624, 630, 40000, 79),
  llama(16, 256, 298, 290), llama(8, 1024, 581, 602),
  small(mixed { model = "llama3.1-8b", optimizer = "sgd", batch_size = 2, seq_length = 1024, num_layers = 32 }, 180, 175,
    peers("llama-lm 1024 2 32", "eager", "compile")),
  small(mixed { model = "llama3.2-1b", batch_size = 8, seq_length = 1024, num_layers = 16 }, 115, 120,
    peers("llama1b-lm 1024 8 16", "eager", "compile")),
  small(mixed({ model = "qwen1.5-1.8b", dtype = "bfloat16", batch_size = 4 }, { seq_length = 2048, num_layers = 24 }), 150, 153,
    peers("qwen 2048 4 24", "eager", "compile")),
  small(mixed { model = "qwen2.5-1.5b", batch_size = 4, seq_length = 2048, num_layers = 28 }, 152, 158,
    peers("qwen2.5 2048 4 28", "eager", "compile")),
  -- 50,000 tokens/s
  small(mixed { model = "vaultgemma-1b", batch_size = 8, seq_length = 1024, num_layers = 26 }, nil, 8192 / 50),
  dit_xl(8, 35, 38), dit_xl(32, 60, 63), lora(1024, 125, 23), lora(4096, 560),
  work("engines", mixed { model = "llama3.1-8b", task = "classify", optimizer = "sgd", batch_size = 2, seq_length = 1024, num_layers = 8 },
    { engine "none", engine "materialize", engine("ghost", 356), engine("flash", 469), engine("bookkeeping", 375),
      engine("flash_bookkeeping", 241), engine("auto", 241) }),
  dit_l(2, 129), dit_l(16, 830),
  offload("llama3.2-1b", 16, 330, 350, "llama1b 1024 2 16 offload"), offload("llama3.1-8b", 32, nil, nil, "llama 1024 2 32 offload"),
  long(16384), long(32768), long(65536),
}

M.sets = { "llama", "small", "lora", "engines", "dit", "offload", "long" }

--- Options that rows of one work have in common are the others: a point is found by them.
M.row_keys = { "mode", "memory_budget_mb", "profile" }
--- Names of all options that rows set, in the order of a point's name.
M.option_keys = { "model", "task", "dtype", "param_dtype", "optimizer", "parallel", "cpu_offload", "checkpointing", "lora_rank", "mode",
  "batch_size", "seq_length", "num_layers", "head_chunk", "memory_budget_mb", "profile", "warmup", "iters" }
M.defaults = { cpu_offload = false, checkpointing = "none", lora_rank = 0, head_chunk = 0, memory_budget_mb = 0, profile = "layers",
  warmup = 4, iters = 12 }

--- A row's options, with values for all keys.
function M.options_of(one, row)
  local options = {}
  for _, key in ipairs(M.option_keys) do
    local value = row[key]
    if value == nil then value = one.options[key] end
    if value == nil then value = M.defaults[key] end
    options[key] = value
  end
  return options
end

function M.name_of(one)
  local o = one.options
  local kind = o.cpu_offload and " offload" or o.checkpointing and " checkpointing" or o.lora_rank and " LoRA" or ""
  return ("%s %s x%d B%d T%d%s"):format(o.model, o.task, o.num_layers, o.batch_size, o.seq_length, kind)
end

return M
