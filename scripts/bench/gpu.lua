--- Question: does a private step on one GPU cost no more than the best plain step that PyTorch users have?
-- Inputs: none (synthetic batches, random weights). Outputs: a run folder, torch.json in it with PyTorch's own figures
-- from the same machine (where python3 has torch and transformers), table.txt, and the table on the screen.
-- MOONSHARD_BENCH_PYTHON names another Python for PyTorch's side.
-- Run: make bench-gpu, or: moonshard run scripts/bench/gpu.lua [llama|engines|dit|qwen …] [--no-torch|--torch-from FILE] [--iters N]
local ms = require "moonshard"
local command_line = require "moonshard.arguments"
local lists = require "moonshard.lists"
local native = require "moonshard.native"

--- Rows: what is run, PyTorch's counterpart (arguments of torch_peer.py) and the goal: ms, GiB or tokens per second.
local function llama(tokens, mode, budget_mb, goal)
  return { set = "llama", model = "llama3.1-8b", task = "classify", dtype = "float32", param_dtype = "bfloat16", optimizer = "sgd",
    parallel = "fsdp", mode = mode, batch_size = 2, seq_length = tokens, num_layers = 32, memory_budget_mb = budget_mb or 0, goal = goal,
    torch = { "llama " .. tokens .. " 2 32 eager", "llama " .. tokens .. " 2 32 compile" } }
end

local function engine(mode, seed_ms)
  local row = llama(1024, mode, 0, { ms = seed_ms and seed_ms / 2 })
  row.set, row.num_layers, row.torch = "engines", 8, {}
  return row
end

local function dit(mode, batch, goal)
  return { set = "dit", model = "dit-l/8", task = "denoise", dtype = "float32", param_dtype = "float32", optimizer = "adam",
    parallel = "none", mode = mode, batch_size = batch, seq_length = 1024, num_layers = 24, memory_budget_mb = 0, goal = goal, torch = {} }
end

local rows = {
  llama(1024, "none"), llama(1024, "auto", 13000, { ms = 234, gib = 48 }), llama(1024, "flash_bookkeeping", 0, { ms = 234, gib = 48 }),
  llama(2048, "none"), llama(2048, "auto", 22000, { ms = 378, gib = 58 }), llama(2048, "flash_bookkeeping", 0, { ms = 378, gib = 58 }),
  llama(4096, "none"), llama(4096, "auto", 40000, { ms = 696, gib = 79 }), llama(4096, "flash_bookkeeping", 0, { ms = 696, gib = 79 }),
  llama(1024, "materialize", 0, { gib = 139 }), llama(1024, "ghost", 0, { gib = 139 }), llama(1024, "flash", 0, { gib = 139 }),
  llama(1024, "bookkeeping", 0, { gib = 139 }),
  engine("none"), engine("materialize"), engine("ghost", 356), engine("flash", 469), engine("bookkeeping", 375),
  engine("flash_bookkeeping", 241), engine("auto", 241),
  dit("none", 2, { ms = 129 }), dit("auto", 2, { ratio = 1.15 }), dit("none", 16, { ms = 830 }), dit("auto", 16, { ratio = 1.15 }),
  { set = "qwen", model = "qwen1.5-1.8b", task = "lm", dtype = "bfloat16", param_dtype = "bfloat16", optimizer = "adamw", parallel = "fsdp",
    mode = "none", batch_size = 4, seq_length = 2048, num_layers = 24, memory_budget_mb = 0, goal = { tokens_per_s = 46500 },
    torch = { "qwen 2048 4 24 eager", "qwen 2048 4 24 compile" } },
}
local option_keys = { "model", "task", "dtype", "param_dtype", "optimizer", "parallel", "mode", "batch_size", "seq_length", "num_layers",
  "memory_budget_mb" }

local flags = {
  { name = "no_torch", kind = "boolean", doc = "without PyTorch's side" },
  { name = "torch_from", kind = "text", doc = "a file of torch_peer.py's output, instead of running it" },
  { name = "iters", kind = "int", doc = "measured steps (12)" },
}
local sets = { name = "sets", kind = "text", list = true, choices = { "llama", "engines", "dit", "qwen" } }

local function read_arguments(words)
  local given = command_line.parse("bench", words, flags, sets)
  local chosen = lists.select(rows, function(row) return lists.contains(given.sets or { row.set }, row.set) end)
  return chosen, { torch = not given.no_torch, torch_from = given.torch_from, iters = given.iters or 12 }
end

--- PyTorch's figures that torch_peer.py printed before, on this machine: lines "RESULT {json}".
local function read_torch(path)
  local results = {}
  for line in io.lines(path) do
    local result = line:match "^RESULT (.*)$"
    if result then
      local field = function(name) return result:match('"' .. name .. '": "?([^",}]+)') end
      results[#results + 1] = { result = result,
        arguments = table.concat({ field "family", field "tokens", field "batch", field "layers", field "how" }, " ") }
    end
  end
  return results
end

--- PyTorch's figures for the chosen rows, each measured once, in a separate process.
local function measure_torch(chosen)
  local peer = (debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or ".") .. "/torch_peer.py"
  return lists.map(lists.unique(lists.extend({}, unpack(lists.column(chosen, "torch")))), function(arguments)
    local pipe = assert(io.popen(("%s %q %s 2>&1"):format(os.getenv "MOONSHARD_BENCH_PYTHON" or "python3", peer, arguments)))
    local line = '{"error": "no result; is PyTorch with transformers installed?"}'
    for text in pipe:lines() do line = text:match "^RESULT (.*)$" or line end
    pipe:close()
    print(("PyTorch %s: %s"):format(arguments, line))
    return { arguments = arguments, result = line }
  end)
end

local function torch_words(row, results)
  local words = {}
  for _, arguments in ipairs(row.torch) do
    for _, entry in ipairs(results) do
      if entry.arguments == arguments then
        local time, gib = entry.result:match '"ms": ([%d.]+)', entry.result:match '"peak_gib": ([%d.]+)'
        local how = arguments:match "%S+$"
        words[#words + 1] = time and ("%s %.0f ms %.1f GiB"):format(how, time, gib) or how .. " failed"
      end
    end
  end
  return table.concat(words, ", ")
end

--- The goal in words, and whether it is met.
local function judge(row, point, plain)
  local goal, metrics = row.goal, point.metrics
  if not goal or not next(goal) then return "", "" end
  local words, good = {}, true
  local function need(text, met)
    words[#words + 1] = text
    good = good and met
  end
  if goal.ms then need(("<= %.0f ms"):format(goal.ms), metrics.median_time_ms <= goal.ms) end
  if goal.gib then need(("<= %d GiB"):format(goal.gib), metrics.peak_memory_gb <= goal.gib) end
  if goal.tokens_per_s then need((">= %d tokens/s"):format(goal.tokens_per_s), metrics.tokens_per_s >= goal.tokens_per_s) end
  if goal.ratio then
    need(("<= %.2f x plain"):format(goal.ratio), plain ~= nil and metrics.median_time_ms <= goal.ratio * plain)
  end
  return table.concat(words, ", "), good and "met" or "MISSED"
end

local chosen, settings = read_arguments { ... }
local zip = {}
for _, key in ipairs(option_keys) do zip[key] = lists.column(chosen, key) end
local torch_results = settings.torch_from and read_torch(settings.torch_from) or settings.torch and measure_torch(chosen) or {}
local runs = ms.sweep { name = "bench_gpu", device = "cuda", noise_multiplier = 1.0, warmup = 3, iters = settings.iters, zip = zip }:run()
if not runs then return end

local lines = { ("%-44s %9s %9s %10s  %-28s %-7s %s"):format("work", "ms", "GiB", "tokens/s", "goal", "", "PyTorch, plain, same call") }
local plain_of = {}
for i, point in ipairs(runs.points) do
  local row = chosen[i]
  local name = ("%s x%d B%d T%d %s"):format(row.model, row.num_layers, row.batch_size, row.seq_length, row.mode)
  local same_work = table.concat({ row.model, row.num_layers, row.batch_size, row.seq_length }, " ")
  if point.status ~= "ok" then
    lines[#lines + 1] = ("%-44s %s"):format(name, point.status)
  else
    if row.mode == "none" then plain_of[same_work] = point.metrics.median_time_ms end
    local goal, verdict = judge(row, point, plain_of[same_work])
    lines[#lines + 1] = ("%-44s %9.1f %9.2f %10.0f  %-28s %-7s %s"):format(name, point.metrics.median_time_ms, point.metrics.peak_memory_gb,
      point.metrics.tokens_per_s, goal, verdict, torch_words(row, torch_results))
  end
end
local text = table.concat(lines, "\n") .. "\n"
print("\n" .. text)
native.files.write(runs.path .. "/table.txt", text)
if #torch_results > 0 then
  local entries = lists.map(torch_results, function(entry)
    return ('  {"arguments": "%s", "result": %s}'):format(entry.arguments, entry.result)
  end)
  native.files.write(runs.path .. "/torch.json", "[\n" .. table.concat(entries, ",\n") .. "\n]\n")
end
print("run folder: " .. runs.path)
