--- Question: does a private step on one GPU cost no more than the best plain step that PyTorch users have?
-- Inputs: none (synthetic batches, random weights). Outputs: a run folder, torch.json in it with PyTorch's own figures
-- from the same machine (where python3 has torch and transformers), table.txt, and the table on the screen.
-- PyTorch runs right before the rows of its work. MOONSHARD_BENCH_PYTHON names another Python for PyTorch's side.
-- Run: make bench-gpu, or: moonshard run scripts/bench/gpu.lua [llama|small|lora|engines|dit|offload|long …] [--no-torch] [--torch compile]
--      [--iters N] [--match TEXT] [--busy]
local ms = require "moonshard"
local command_line = require "moonshard.arguments"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."
local plan = dofile(here .. "/works.lua")

local flags = {
  { name = "no_torch", kind = "boolean", doc = "without PyTorch's side" },
  { name = "torch", kind = "text", choices = { "eager", "compile", "offload" }, doc = "of PyTorch's side only this" },
  { name = "iters", kind = "int", doc = "measured steps (12)" },
  { name = "match", kind = "text", doc = "only works whose name has this text" },
  { name = "busy", kind = "boolean", doc = "also on a GPU that somebody else uses; times are then not comparable" },
}

local function read_arguments(words)
  local given = command_line.parse("bench", words, flags, { name = "sets", kind = "text", list = true, choices = plan.sets })
  local works = lists.select(plan.works, function(one)
    return lists.contains(given.sets or { one.set }, one.set) and plan.name_of(one):find(given.match or "", 1, true) ~= nil
  end)
  if #works == 0 then error("bench: expected works whose name has '" .. given.match .. "', got none", 0) end
  if given.torch then
    for _, one in ipairs(works) do
      one.torch = lists.select(one.torch, function(arguments) return arguments:match "%S+$" == given.torch end)
    end
  end
  return works, { torch = not given.no_torch, iters = given.iters or 12, busy = given.busy }
end

--- Times beside somebody else's work mean nothing.
local function refuse_busy_gpu()
  for _, gpu in ipairs(ms.gpus().gpus) do
    if #gpu.processes > 0 or gpu.memory_used_bytes > 4 * 2 ^ 30 then
      error(("bench: expected a GPU that nobody uses, got GPU %d with %.1f GiB in use; wait, or give --busy"):format(gpu.index,
        gpu.memory_used_bytes / 2 ^ 30), 0)
    end
  end
end

--- PyTorch's figures for one work, each in a separate process.
local function measure_torch(one)
  return lists.map(one.torch, function(arguments)
    local python = os.getenv "MOONSHARD_BENCH_PYTHON" or "python3"
    -- With the allocator's usual settings: this process has set others for its own LibTorch.
    local pipe = assert(io.popen(("env -u PYTORCH_CUDA_ALLOC_CONF %s %q %s 2>&1"):format(python, here .. "/torch_peer.py", arguments)))
    local line = '{"error": "no result; is PyTorch with transformers installed?"}'
    for text in pipe:lines() do line = text:match "^RESULT (.*)$" or line end
    pipe:close()
    print(("PyTorch %s: %s"):format(arguments, line))
    return { arguments = arguments, result = line, ms = tonumber(line:match '"ms": ([%d.]+)'), gib = line:match '"peak_gib": ([%d.]+)' }
  end)
end

local function torch_words(results)
  return table.concat(lists.map(results, function(entry)
    local how = entry.arguments:match "%S+$"
    return entry.ms and ("%s %.0f ms %.1f GiB"):format(how, entry.ms, entry.gib) or how .. " failed"
  end), ", ")
end

--- Goals in words, and whether they are met: the row's own, and those that every work has.
local function judge(row, point, of_mode, torch, is_offload)
  local goal, metrics, words, good = row.goal or {}, point.metrics, {}, true
  local time, is_fast_auto = metrics.median_time_ms, row.mode == "auto" and not row.is_tight
  local function need(text, met)
    words[#words + 1] = text
    good = good and met
  end
  if goal.ms then need(("<= %.0f ms"):format(goal.ms), time <= goal.ms) end
  if goal.gib then need(("<= %d GiB"):format(goal.gib), metrics.peak_memory_gb <= goal.gib) end
  if is_fast_auto and of_mode.none then need("<= 1.05 x plain", time <= 1.05 * of_mode.none) end
  if is_fast_auto then
    local best = math.huge
    for mode, other in pairs(of_mode) do best = mode ~= "none" and mode ~= "auto" and math.min(best, other) or best end
    if best < math.huge then need("<= 1.01 x best", time <= 1.01 * best) end
  end
  if row.mode == "flash_bookkeeping" and of_mode.bookkeeping then need("<= 1.03 x bookkeeping", time <= 1.03 * of_mode.bookkeeping) end
  if is_offload and torch[1] and torch[1].ms then need("<= 1.3 x PyTorch", time <= 1.3 * torch[1].ms) end
  return table.concat(words, ", "), #words == 0 and "" or good and "met" or "MISSED"
end

local function engine_words(row)
  return row.memory_budget_mb and ("%s, %d MB"):format(row.mode, row.memory_budget_mb) or row.mode
end

local works, settings = read_arguments { ... }
if not settings.busy then refuse_busy_gpu() end
local zip = {}
plan.defaults.iters = settings.iters
for _, key in ipairs(plan.option_keys) do
  zip[key] = {}
  for _, one in ipairs(works) do
    for _, row in ipairs(one.rows) do table.insert(zip[key], plan.options_of(one, row)[key]) end
  end
end
local sweep = ms.sweep { name = "bench_gpu", device = "cuda", noise_multiplier = 1.0, zip = zip }

local path, runs
for _, one in ipairs(works) do
  one.measured = settings.torch and measure_torch(one) or {}
  local only = {}
  for key, value in pairs(plan.options_of(one, {})) do if not lists.contains(plan.row_keys, key) then only[key] = value end end
  runs = sweep:run { resume = path, only = only }
  path = runs.path
end

local lines = { ("%-46s %-18s %8s %6s %8s %9s  %-48s %-7s %s"):format("work", "engine", "ms", "IQR", "GiB", "tokens/s", "goal", "",
  "PyTorch, plain, same call") }
local by_id = {}
for _, point in ipairs(runs.points) do by_id[point.id] = point end
local place = 0
for _, one in ipairs(works) do
  local of_mode, rows = {}, {}
  for _, row in ipairs(one.rows) do
    place = place + 1
    local point = by_id[sweep.points[place].id]
    rows[#rows + 1] = { row = row, point = point }
    if point and point.status == "ok" then of_mode[row.mode] = point.metrics.median_time_ms end
  end
  for _, entry in ipairs(rows) do
    local row, point = entry.row, entry.point
    local engine = engine_words(row)
    if not point or point.status ~= "ok" then
      lines[#lines + 1] = ("%-46s %-18s %s"):format(plan.name_of(one), engine, point and point.status or "not run")
    else
      local goal, verdict = judge(row, point, of_mode, one.measured, one.options.cpu_offload)
      local metrics = point.metrics
      lines[#lines + 1] = ("%-46s %-18s %8.1f %6.1f %8.2f %9.0f  %-48s %-7s %s"):format(plan.name_of(one), engine, metrics.median_time_ms,
        metrics.iqr_time_ms, metrics.peak_memory_gb, metrics.tokens_per_s, goal, verdict, torch_words(one.measured))
    end
  end
end
local text = table.concat(lines, "\n") .. "\n"
print("\n" .. text)
native.files.write(path .. "/table.txt", text)
local entries = {}
for _, one in ipairs(works) do
  for _, entry in ipairs(one.measured) do
    entries[#entries + 1] = ('  {"arguments": "%s", "result": %s}'):format(entry.arguments, entry.result)
  end
end
if #entries > 0 then native.files.write(path .. "/torch.json", "[\n" .. table.concat(entries, ",\n") .. "\n]\n") end
print("run folder: " .. path)
