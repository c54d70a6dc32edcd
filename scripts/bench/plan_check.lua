--- Question: how far are predictions of memory and time from what was measured?
-- Inputs: run folders of measured points (the committed ones by default). Outputs: a table of every point, medians and worst cases.
-- Run: moonshard run scripts/bench/plan_check.lua [FOLDER …] [--machine FILE|own] [--verbose] [--spread] [--figure FILE.png]
local ms = require "moonshard"
local command_line = require "moonshard.arguments"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_files = require "moonshard.plot_files"
local text_table = require "moonshard.text_table"
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."
local predict = dofile(here .. "/plan_prediction.lua")

local flags = {
  { name = "machine", kind = "text",
    doc = "machine profile (that of the H200); own: every folder's machine.json, a calibration beside the points" },
  { name = "verbose", kind = "boolean", doc = "phases and owners of every point" },
  { name = "figure", kind = "text", value = "FILE.png", doc = "draw predicted against measured; the plot spec lies beside it" },
  { name = "spread", kind = "boolean", doc = "how far nine of ten points were from their predictions, for 'checked' in a profile" },
  { name = "match", kind = "text", doc = "only points whose name has this text" },
}
local results = here .. "/../../examples/results/"
-- Memory is that of the code that ran. All but those of since_then were measured before the product of gate and up was made again in
-- backward and one row of gradients less was under way: their memory is compared by itself.
local committed = { "bench_gpu", "bench_gpu_small", "bench_gpu_engines", "bench_gpu_lora", "bench_gpu_offload",
  "document_000_llama3.1_8b", "document_001_llama3.2_1b", "document_002_qwen1.5_1.8b", "document_004_dit_l", "plan_h200",
  "plan_heldout", "plan_drawn", "plan_drawn_2", "plan_drawn_3", "plan_drawn_4", "plan_drawn_5", "plan_drawn_6", "plan_drawn_7",
  "plan_drawn_8", "plan_drawn_9" }
local since_then = { bench_gpu = true, bench_gpu_small = true, bench_gpu_engines = true, bench_gpu_lora = true, plan_h200 = true,
  plan_heldout = true, plan_drawn = true, plan_drawn_2 = true, plan_drawn_3 = true, plan_drawn_4 = true, plan_drawn_5 = true,
  plan_drawn_6 = true, plan_drawn_7 = true, plan_drawn_8 = true, plan_drawn_9 = true }
-- When all but these were measured, steps of several ranks were no CUDA graphs.
local graphs_of_ranks = { plan_drawn_3 = true, plan_drawn_4 = true, plan_drawn_5 = true, plan_drawn_6 = true,
  plan_drawn_7 = true, plan_drawn_8 = true, plan_drawn_9 = true }

-- Since these the segments of the GPU's allocator grow (runtime/core/allocators.h).
local growing_segments = { plan_drawn_8 = true, plan_drawn_9 = true, bench_gpu = true, bench_gpu_small = true, bench_gpu_engines = true,
  bench_gpu_lora = true }

local function name_of(options)
  local parts = { options.model, options.mode, options.task, "B" .. options.batch_size, "T" .. options.seq_length, options.parallel }
  if options.parallel == "fsdp" then parts[#parts + 1] = options.sharding end
  if options.world ~= "auto" then parts[#parts + 1] = options.world end
  if options.cpu_offload then parts[#parts + 1] = "offload" end
  if options.checkpointing ~= "none" then parts[#parts + 1] = options.checkpointing end
  if options.grad_accum > 1 then parts[#parts + 1] = "accum" .. options.grad_accum end
  if (options.lora_rank or 0) > 0 then parts[#parts + 1] = "lora" .. options.lora_rank end
  return table.concat(parts, " ")
end

--- Of steps that are replayed as a graph, older records count the pieces that its memory came in, too. The step that was captured, one of
-- the first, had all of its tensors; nil where a record has nothing of those.
local function peak_of(point)
  local peak = point.metrics.peak_memory_bytes
  if point.result.time.phases_ms.graph == nil then return peak end
  for _, moment in ipairs(point.result.memory_stages or {}) do
    if moment.stage == "after warmup" then return math.min(peak, moment.max_allocated_bytes) end
  end
end

local function percent(predicted, measured) return 100 * (predicted / measured - 1) end

local function show_details(point, prediction)
  local function side(list)
    local words = {}
    for _, row in ipairs(list or {}) do
      if row.bytes > 2 ^ 26 then words[#words + 1] = ("%s %.2f"):format(row.owner, row.bytes / 2 ^ 30) end
    end
    return table.concat(words, ", ")
  end
  print("    memory predicted in " .. prediction.peak_phase .. ": " .. side(prediction.breakdown))
  print("    memory measured in " .. tostring(point.memory.peak_phase) .. ":  " .. side(point.memory.breakdown))
  local words = {}
  for name, phase in pairs(point.time.phases_ms) do
    words[#words + 1] = ("%s %.1f (%.1f)"):format(name, prediction.phases_ms[name] or 0, phase.median)
  end
  for name, value in pairs(prediction.phases_ms) do
    if not point.time.phases_ms[name] then words[#words + 1] = ("%s %.1f (-)"):format(name, value) end
  end
  table.sort(words)
  print("    ms predicted (measured): " .. table.concat(words, ", ") .. (", host %.1f"):format(prediction.host_ms))
end

--- Of measured over predicted, what 5 and 95 of a hundred points are below.
local function spread_of(ratios)
  local sorted = { unpack(ratios) }
  table.sort(sorted)
  local function at(share)
    local place = 1 + share * (#sorted - 1)
    local low = math.floor(place)
    return sorted[low] + (place - low) * ((sorted[low + 1] or sorted[low]) - sorted[low])
  end
  return ("low %.3f, high %.3f, points %d"):format(at(0.05), at(0.95), #sorted)
end

local function median(list)
  local sorted = { unpack(list) }
  table.sort(sorted)
  return sorted[math.ceil(#sorted / 2)]
end

local function summary(name, errors)
  if #errors == 0 then return end
  local sizes = lists.map(errors, math.abs)
  local within = function(limit) return #lists.select(sizes, function(e) return e <= limit end) end
  print(("%s: %d points, error median %.1f %%, worst %.1f %%; within 3 %%: %d, 5 %%: %d, 12 %%: %d"):format(name, #errors, median(sizes),
    math.max(unpack(sizes)), within(3), within(5), within(12)))
end

--- What a point is about, for the figure's colours: the first that it has.
local function kind_of(options)
  if options.cpu_offload then return "offload" end
  if (options.lora_rank or 0) > 0 then return "LoRA" end
  if options.checkpointing ~= "none" then return "checkpointing" end
  if options.task == "denoise" then return "images" end
  if options.mode == "auto" then return "engine auto" end
  return options.mode == "none" and "plain" or "private"
end

--- Predicted against measured, with lines for no error and for what the plan is meant to keep within.
local function panel(title, unit, points, place, within)
  local by_kind, series, low, high = {}, {}, math.huge, 0
  for _, point in ipairs(points) do
    local entry = by_kind[point.kind]
    if not entry then
      entry = { name = point.kind, x = {}, y = {}, labels = {} }
      by_kind[point.kind], series[#series + 1] = entry, entry
    end
    local measured, predicted = point.row[place], point.row[place + 1]
    table.insert(entry.x, measured)
    table.insert(entry.y, predicted)
    table.insert(entry.labels, point.row[1])
    low, high = math.min(low, measured, predicted), math.max(high, measured, predicted)
  end
  local function line(text, factor) return { text = text, x = { low, high }, y = { low * factor, high * factor } } end
  return { kind = "scatter", title = title, x = { label = "measured", unit = unit, scale = "log" },
    y = { label = "predicted", unit = unit, scale = "log" }, series = series,
    references = { line("", 1), line(("+%d %%"):format(within), 1 + within / 100), line(("-%d %%"):format(within), 1 - within / 100) } }
end

local function draw(points, path)
  local spec = { schema_version = 1, title = ("Predicted against measured, %d points"):format(#points), width = 1240, height = 600,
    note = "Predictions are modelled (ms.plan), the other figures measured on one GPU.", panels = {
      panel("peak memory", "GiB", points, 2, 3), panel("time of a step", "ms", points, 5, 12) } }
  native.files.write(path:gsub("%.png$", "") .. ".plot.json", native.records.to_json(spec))
  local drawn, why = plot_files.draw_png({ { spec = path:gsub("%.png$", "") .. ".plot.json", out = path } }, { scale = 1 })
  print(drawn and "drawn: " .. path or "not drawn: " .. tostring(why))
end

local given = command_line.parse("plan_check", arg, flags, { name = "folders", kind = "text", list = true })
local folders = given.folders or lists.map(committed, function(name) return results .. name end)
local machine = given.machine or (here .. "/../moonshard/machines/h200.json")
local out_of_memory, said_to_fit, beyond, other_graph = {}, {}, {}, {}
local fixed_segments  -- of the allocator when the present folder was measured
local function prediction_of(options) return predict(options, machine, { fixed_segments = fixed_segments }) end

--- With compile = auto the training decides by what two steps have shown, which near its threshold is chance: the same options, and that
-- decided as it was.
local function as_it_was(options, is_graph)
  return prediction_of(lists.merged(options, { compile = is_graph and "yes" or "no" }))
end

local drawn_points = {}
local rows, memory_errors, older_errors, time_errors = {}, {}, {}, {}
local known_memory, known_time = {}, {}  -- errors where it is known whether there is a graph
local device_time = {}                   -- of steps in which the device has more to do than the host
local most_host = 0.7
local ratios = { memory = {}, device = {}, host = {} }  -- measured over predicted; `device`: launches take at most spread_host
local spread_host = 0.6
local in_range, with_range = 0, 0
if given.machine == "own" and not given.folders then
  error("plan_check: --machine own: expected folders that have a machine.json, got none", 0)
end
for _, folder in ipairs(folders) do
  folder = folder:gsub("/+$", "")
  local folder_name = folder:match "[^/]+$"
  if given.machine == "own" then machine = folder .. "/machine.json" end
  fixed_segments = nil  -- as the profile has it
  if lists.contains(committed, folder_name) then fixed_segments = not growing_segments[folder_name] end
  for _, point in ipairs(ms.load(folder).points) do
    local options = point.options
    -- Measured before there was a choice.
    if options.task == "classify" and not options.last_block then options = lists.merged(options, { last_block = "all" }) end
    local name = name_of(options)
    if lists.contains(committed, folder_name) and not graphs_of_ranks[folder_name] and options.world ~= "auto" then
      options = lists.merged(options, { compile = "no" })
    end
    if point.status == "oom" then
      out_of_memory[#out_of_memory + 1] = name
      if prediction_of(options).fits then said_to_fit[#said_to_fit + 1] = name end
    end
    if point.status == "ok" and name:find(given.match or "", 1, true) then
      local prediction = prediction_of(options)
      local peak = peak_of(point)
      local memory = peak and percent(prediction.peak_memory_bytes, peak)
      local is_older = not given.folders and not since_then[folder_name]
      if peak and not is_older and peak > 1.03 * prediction.peak_at_most_bytes then beyond[#beyond + 1] = name end
      local time = percent(prediction.step_ms, point.metrics.median_time_ms)
      table.insert(is_older and older_errors or memory_errors, memory)
      time_errors[#time_errors + 1] = time
      if prediction.host_ms <= most_host * prediction.step_ms then device_time[#device_time + 1] = time end
      local ratio, likely = point.metrics.median_time_ms / prediction.step_ms, prediction.likely.step_ms
      table.insert(prediction.host_ms <= spread_host * prediction.step_ms and ratios.device or ratios.host, ratio)
      if likely then
        with_range = with_range + 1
        local is_in = point.metrics.median_time_ms >= likely.low and point.metrics.median_time_ms <= likely.high
        in_range = in_range + (is_in and 1 or 0)
      end
      local is_graph = point.result.time.phases_ms.graph ~= nil
      if peak and not is_older and prediction.graph == is_graph then
        table.insert(ratios.memory, peak / prediction.peak_memory_bytes)
      end
      local known = prediction
      if prediction.graph ~= is_graph then
        known = as_it_was(options, is_graph)
        other_graph[#other_graph + 1] = name
      end
      if peak and not is_older then known_memory[#known_memory + 1] = percent(known.peak_memory_bytes, peak) end
      known_time[#known_time + 1] = percent(known.step_ms, point.metrics.median_time_ms)
      rows[#rows + 1] = { name, peak and peak / 2 ^ 30 or "?", prediction.peak_memory_bytes / 2 ^ 30, memory or "?",
        point.metrics.median_time_ms, prediction.step_ms, time }
      if peak then drawn_points[#drawn_points + 1] = { kind = kind_of(options), row = rows[#rows] } end
      if given.verbose then
        print(("%s: memory %+.1f %%, time %+.1f %%"):format(name, memory or 0 / 0, time))
        show_details(native.records.read_json(("%s/points/%s/result.json"):format(folder, point.id)), prediction)
      end
    end
  end
end
print(text_table.format({ "point", "GiB measured", "predicted", "%", "ms measured", "predicted", "%" }, rows))
summary("memory", memory_errors)
summary("memory, measured with older code", older_errors)
summary("time", time_errors)
summary(("time, launches predicted to take at most %d %% of it"):format(100 * most_host), device_time)
if with_range > 0 then print(("time: %d of %d points in the range that the plan gives for nine of ten"):format(in_range, with_range)) end
if given.spread then
  for _, kind in ipairs { "memory", "device", "host" } do
    if #ratios[kind] > 0 then print(("spread of %s: %s"):format(kind, spread_of(ratios[kind]))) end
  end
end
if #other_graph > 0 then
  summary("memory, told whether steps are a graph", known_memory)
  summary("time, told whether steps are a graph", known_time)
  print(("%d points are a CUDA graph, or none, against the prediction: %s"):format(#other_graph, table.concat(other_graph, "; ")))
end
print(("%d points needed more than 3 %% beyond what the plan says is the most: %s"):format(#beyond, #beyond > 0
  and table.concat(beyond, "; ") or "none"))
if #out_of_memory > 0 then
  print(("%d points ran out of memory, of which the plan says that %d fit: %s"):format(#out_of_memory, #said_to_fit,
    #said_to_fit > 0 and table.concat(said_to_fit, "; ") or "none"))
end
if given.figure then draw(drawn_points, given.figure) end
