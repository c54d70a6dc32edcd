--- How a plan is shown, and the scripts that it becomes.
local asked = require "moonshard.plan_options"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local M = {}
local GiB = 2 ^ 30

local function size_text(bytes) return bytes >= 0.1 * GiB and ("%.1f GiB"):format(bytes / GiB) or ("%.1f MiB"):format(bytes / 2 ^ 20) end

local function wrapper_of(o)
  if o.parallel ~= "fsdp" then return o.parallel end
  local words = { o.sharding }
  if o.replicate > 1 then words[#words + 1] = ("x%d"):format(o.replicate) end
  if o.wrap ~= "module" then words[#words + 1] = "wrap " .. o.wrap end
  if o.backward_prefetch ~= "pre" then words[#words + 1] = "no prefetch" end
  if not o.limit_all_gathers then words[#words + 1] = "two ahead" end
  if o.cpu_offload then words[#words + 1] = "offload" end
  return table.concat(words, ", ")
end

local function precision_of(o) return o.dtype == o.param_dtype and o.dtype or o.dtype .. "/" .. o.param_dtype end

local function cells(row)
  local o, run = row.options, row.run or {}
  return { o.mode, wrapper_of(o), o.checkpointing, ("%d x %d"):format(o.batch_size, o.grad_accum), precision_of(o),
    row.peak_memory_bytes / GiB, row.step_ms, row.tokens_per_s, row.exposed_ms, run.gpu_hours or "", run.goodput_percent or "",
    run.price or "", run.epsilon or "" }
end

local columns = { "engine", "wrapper", "checkpointing", "batch x accum", "dtypes", "GiB", "ms/step", "tokens/s", "exposed ms", "GPU h",
  "goodput %", "price", "epsilon" }

--- With a column for each option that was tried and that no other column shows: `rows` are cells of these plans.
local function with_tried(plan, names, rows, plans)
  local shown = lists.set { "mode", "parallel", "sharding", "replicate", "wrap", "backward_prefetch", "forward_prefetch",
    "limit_all_gathers", "cpu_offload", "checkpointing", "batch_size", "grad_accum", "dtype", "param_dtype" }
  local more = lists.select(lists.keys(plan.request.try or {}), function(name) return not shown[name] end)
  table.sort(more)
  for i, row in ipairs(rows) do
    lists.extend(row, lists.map(more, function(name) return tostring(plans[i].options[name]) end))
  end
  return lists.extend(lists.merged(names), more), rows
end

--- Columns that are empty in every row say nothing.
local function without_empty(names, rows)
  local kept, places = {}, {}
  for i, name in ipairs(names) do
    if #lists.select(rows, function(row) return row[i] ~= "" end) > 0 then
      kept[#kept + 1], places[#places + 1] = name, i
    end
  end
  return kept, lists.map(rows, function(row) return lists.map(places, function(place) return row[place] end) end)
end

--- What print shows: the best plans, the nearest that do not fit, and the front.
function M.table_of(plan)
  local lines = { ("modelled: %s, %d x %s, %.1f GiB each; %d configuration%s, %d fit"):format(plan.plans[1] and plan.plans[1].options.model
    or plan.shared.model or "", plan.ranks, plan.machine.device, plan.memory_bytes / GiB, plan.tried, plan.tried == 1 and "" or "s",
    plan.fits or #plan.plans) }
  for _, text in ipairs(plan.assumptions) do lines[#lines + 1] = "  " .. text end
  if #plan.plans > 0 then
    local names, rows = with_tried(plan, columns, lists.map(plan.plans, cells), plan.plans)
    lines[#lines + 1] = text_table.format(without_empty(names, rows))
  else
    lines[#lines + 1] = "nothing fits"
  end
  for i, row in ipairs(plan.plans) do
    if row.as_fast and #row.as_fast > 0 and i <= 3 then
      lines[#lines + 1] = ("plan %d is as fast with: %s"):format(i, table.concat(row.as_fast, "; ", 1, math.min(3, #row.as_fast)))
    end
  end
  if plan.too_slow then lines[#lines + 1] = plan.too_slow end
  if #plan.too_large > 0 then
    lines[#lines + 1] = "do not fit:"
    for i = 1, math.min(3, #plan.too_large) do
      local row = plan.too_large[i]
      lines[#lines + 1] = ("  %s, %s, %s, batch %d x %d: %s"):format(row.options.mode, wrapper_of(row.options), row.options.checkpointing,
        row.options.batch_size, row.options.grad_accum, row.why)
    end
  end
  if #plan.front > 1 then
    lines[#lines + 1] = ("time against memory (%s, no other is faster and smaller):"):format(#plan.plans > 0 and "of those that fit"
      or "none of these fits")
    local shown = {}
    for i, row in ipairs(plan.front) do
      if i > 8 then break end
      local o = row.options
      shown[i] = { size_text(row.peak_memory_bytes), ("%.1f ms"):format(row.step_ms), o.mode, wrapper_of(o),
        o.checkpointing, ("%d x %d"):format(o.batch_size, o.grad_accum) }
    end
    local names = { "memory", "step", "engine", "wrapper", "checkpointing", "batch x accum" }
    lines[#lines + 1] = text_table.format(with_tried(plan, names, shown, plan.front))
    if #plan.front > #shown then lines[#lines + 1] = ("and %d more (--json, plan.front)"):format(#plan.front - #shown) end
  end
  return table.concat(lines, "\n")
end

--- Seconds in the unit that people would say them in.
local function span(seconds)
  if seconds >= 3600 then return ("%.1f h"):format(seconds / 3600) end
  if seconds >= 60 then return ("%.1f min"):format(seconds / 60) end
  return ("%.1f s"):format(seconds)
end

--- " (90 % range 147 to 169 ms, by 190 measured steps)": how far steps like it were from their predictions; else nothing.
local function range_text(row, key, format, unit)
  local range = row.likely and row.likely[key]
  if not range then return "" end
  local text = " (90 %% range " .. format .. " to " .. format .. " %s, by %d measured steps)"
  return text:format(range.low / unit.size, range.high / unit.size, unit.name, range.points)
end

--- Every term of one plan; what all of them assume stands with the list.
function M.explanation(plan, row)
  local lines = { ("memory of a rank, modelled, at its peak in %s: %.2f of %.1f GiB%s"):format(row.peak_phase, row.peak_memory_bytes / GiB,
    plan.memory_bytes / GiB, range_text(row, "peak_memory_bytes", "%.2f", { size = GiB, name = "GiB" })) }
  for _, part in ipairs(row.breakdown) do lines[#lines + 1] = ("  %-20s %9.3f GiB"):format(part.owner, part.bytes / GiB) end
  if row.host_bytes > 0 then
    local gpus = plan.request.gpus or 1
    lines[#lines + 1] = ("  in host memory       %9.3f GiB%s"):format(row.host_bytes / GiB,
      gpus > 1 and (", %.1f GiB of a node of %d GPUs"):format(gpus * row.host_bytes / GiB, gpus) or "")
  end
  lines[#lines + 1] = ("a step, modelled: %.2f ms%s%s"):format(row.step_ms, row.graph and ", replayed as a CUDA graph" or "",
    range_text(row, "step_ms", "%.1f", { size = 1, name = "ms" }))
  local phases = lists.keys(row.phases_ms)
  table.sort(phases, function(a, b) return row.phases_ms[a] > row.phases_ms[b] end)
  for _, name in ipairs(phases) do lines[#lines + 1] = ("  %-20s %9.2f ms"):format(name, row.phases_ms[name]) end
  -- What ranks wait for slower ones is no time of a link.
  local waits = row.exposed_ms > row.communication_ms and "; %.2f ms waited for it and for slower ranks" or ", of which %.2f ms exposed"
  lines[#lines + 1] = ("  computation %.2f ms, launches %.2f ms on the host, communication %.2f ms" .. waits):format(
    row.compute_ms, row.host_ms, row.communication_ms, row.exposed_ms)
  if row.copies_exposed_ms > 0 then
    lines[#lines + 1] = ("  %.2f ms waited for copies from the host"):format(row.copies_exposed_ms)
  end
  local rest = row.step_ms - row.compute_ms - row.exposed_ms - row.copies_exposed_ms
  if rest > 0.01 * row.step_ms then
    local text = "  the other %.2f ms: kernels that wait for their launch, or for multiprocessors that a collective uses"
    lines[#lines + 1] = text:format(rest)
  end
  lines[#lines + 1] = ("  %.0f tokens/s, %.1f %% of the rate of the fastest matrix product that was measured"):format(row.tokens_per_s,
    row.mfu_percent)
  local run = row.run
  if run and run.steps then
    lines[#lines + 1] = ("the run: %d steps of %d samples, %.1f h, %.1f GPU hours%s"):format(run.steps, run.batch, run.hours, run.gpu_hours,
      run.price and (", price %.2f"):format(run.price) or "")
  end
  if run and run.failures then
    local f = run.failures
    local text = "failures, modelled: %.3g expected in the run; goodput %.2f %%, %s of training in %s (8 of 10 runs: %s to %s)"
    lines[#lines + 1] = text:format(f.failures, f.goodput_percent, span(run.training_hours * 3600), span(run.hours * 3600),
      span(f.wall_low_s), span(f.wall_high_s))
    lines[#lines + 1] = ("  %s; lost %s and %.3g steps, restarts %s, saves %s"):format(f.save_every >= run.steps and "no save pays"
      or ("a save every %d steps (%s%s)"):format(f.save_every, span(f.save_every * row.step_ms / 1e3), plan.request.save_every and ""
      or ", the best"), span(f.lost_s), f.lost_steps, span(f.restarting_s), span(f.saving_s))
  end
  if run and run.epsilon then
    lines[#lines + 1] = ("privacy: epsilon %.3f at delta %g, noise multiplier %.4f, sampling rate %.3g (Poisson)"):format(run.epsilon,
      run.delta, run.noise_multiplier, run.q)
  end
  if run and run.no_epsilon then lines[#lines + 1] = "privacy: no epsilon: " .. run.no_epsilon end
  return table.concat(lines, "\n")
end

local function quoted(value) return type(value) == "string" and ("%q"):format(value) or tostring(value) end

--- Options of the plan that differ from nothing: what the user gave, and what was chosen.
local function option_lines(plan, row, left_out)
  local all = lists.merged(plan.shared, row.options)
  if not asked.has_data(plan.shared) then -- a budget is one of data that is drawn from
    for _, name in ipairs { "epochs", "budget_steps", "target_epsilon" } do all[name] = nil end
    if row.run and row.run.noise_multiplier then all.noise_multiplier = row.run.noise_multiplier end
  end
  for _, name in ipairs(lists.keys(all)) do
    if not native.plan.has_effect(all.parallel or "none", name) then all[name] = nil end
  end
  if all.wrap ~= "size" then all.min_num_params = nil end
  if all.checkpointing == "none" then all.checkpoint_every = nil end
  if (all.lora_rank or 0) == 0 then all.lora_rank = nil end
  if all.unit_policies == "" then all.unit_policies = nil end
  for name in pairs(left_out or {}) do all[name] = nil end
  local names = lists.keys(all)
  table.sort(names)
  return lists.map(names, function(name) return ("  %s = %s,"):format(name, quoted(all[name])) end)
end

local function head(plan, row)
  return ("-- Planned by moonshard plan for %d x %s: %s and %.1f ms per step, modelled."):format(plan.ranks, plan.machine.device,
    size_text(row.peak_memory_bytes), row.step_ms)
end

--- What a script that measures steps does not do.
local function run_lines(plan, row)
  local run = row.run or {}
  if not run.steps or asked.has_data(plan.shared) then return {} end
  local text = ("-- The planned run has %d steps of %d samples"):format(run.steps, run.batch)
  local lines = { text .. "; this script measures a few of them on synthetic data." }
  if run.epsilon then
    lines[2] = ("-- Its epsilon is %.3f at delta %g, with samples drawn by Poisson from %d examples. To train, give data_folder or"):format(
      run.epsilon, run.delta, plan.request.examples)
    lines[3] = ('-- data_file, sampler = "poisson", and target_epsilon and epochs instead of noise_multiplier.')
  end
  return lines
end

local function start_of(plan)
  if plan.ranks == 1 then return "moonshard run" end
  if (plan.request.nodes or 1) == 1 then return ("moonshard run --nproc %d"):format(plan.ranks) end
  return ("moonshard run --hosts HOST:%d,…  (%d hosts)"):format(plan.request.gpus or 1, plan.request.nodes)
end

--- The script that runs a plan.
function M.script(plan, row)
  local lines = lists.extend({ head(plan, row) }, run_lines(plan, row))
  lists.extend(lines, { "-- Run: " .. start_of(plan) .. " THIS_FILE", 'local ms = require "moonshard"', "print(ms.run {" })
  return table.concat(lists.extend(lists.extend(lines, option_lines(plan, row)), { "})", "" }), "\n")
end

--- Half and twice the micro-batch, with as many samples in a step.
local function batches_around(o)
  local samples, sizes, counts = o.batch_size * o.grad_accum, {}, {}
  for _, size in ipairs { o.batch_size / 2, o.batch_size, o.batch_size * 2 } do
    if size >= 1 and size == math.floor(size) and samples % size == 0 then
      sizes[#sizes + 1], counts[#counts + 1] = size, samples / size
    end
  end
  return sizes, counts
end

--- The names as a Lua list, the plan's own among them.
local function list_with(own, names)
  if not lists.contains(names, own) then names[#names + 1] = own end
  return table.concat(lists.map(names, quoted), ", ")
end

--- Whether the model takes such a value: a linear one has no checkpointing.
local function takes(plan, option, value)
  return (pcall(native.plan.predict, lists.merged(plan.shared, { [option] = value }), plan.cluster))
end

--- A sweep around it: the micro-batch, checkpointing, the engine and its neighbours.
function M.sweep_script(plan, row)
  local o = row.options
  local sizes, counts = batches_around(o)
  local engines = o.mode == "none" and { "none" } or { "none", "bookkeeping", "flash_bookkeeping", "auto" }
  local lines = lists.extend({ head(plan, row) }, run_lines(plan, row))
  if (plan.request.nodes or 1) > 1 then
    lines[#lines + 1] = ("-- On one of the plan's %d nodes: ranks of a sweep are on one machine."):format(plan.request.nodes)
  end
  lists.extend(lines, { "-- Run: moonshard run THIS_FILE", 'local ms = require "moonshard"', "ms.sweep {", '  name = "around_the_plan",',
    ("  grid = { %smode = { %s } },"):format(
      takes(plan, "checkpointing", "block") and ("checkpointing = { %s }, "):format(list_with(o.checkpointing, { "none", "block" })) or "",
      list_with(o.mode, engines)),
    ("  zip = { batch_size = { %s }, grad_accum = { %s } },"):format(table.concat(sizes, ", "), table.concat(counts, ", ")) })
  if plan.ranks > 1 then lines[#lines + 1] = ("  nproc = %d,"):format(plan.request.gpus or 1) end
  lists.extend(lines, option_lines(plan, row, { batch_size = true, grad_accum = true, checkpointing = true, mode = true }))
  lists.extend(lines, { "}:run()", "" })
  return table.concat(lines, "\n")
end

return M
