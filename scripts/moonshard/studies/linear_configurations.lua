--- Configurations, tables and claims of the FSDP tutorial (document 003).
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local points_of = require "moonshard.sweep.points"
local reasons = require "moonshard.studies.reasons"
local shell = require "moonshard.shell"
local stage_rows = require "moonshard.studies.stage_rows"
local statistics = require "moonshard.analyze.statistics"
local text_table = require "moonshard.text_table"

local M = {}

--- Rows of the tutorial's program in PyTorch (moonshard.studies.torch_memory); the script says whether they are measured.
function M.torch_rows() return nil end

--- The options that make a configuration, with the tutorial's defaults: no forward prefetch.
M.keys = { "parallel", "wrap", "backward_prefetch", "forward_prefetch", "cpu_offload", "whole_first" }
local defaults = { parallel = "fsdp", wrap = "module", backward_prefetch = "pre", forward_prefetch = false, cpu_offload = false,
  whole_first = false }

-- The nine of the tutorial, and its habit of making the whole model before it is cut, which its figures contain.
local changes = {
  { parallel = "ddp" }, {}, { wrap = "size" }, { wrap = "none" }, { backward_prefetch = "post" }, { backward_prefetch = "none" },
  { forward_prefetch = true }, { cpu_offload = true }, { forward_prefetch = true, backward_prefetch = "post" }, { whole_first = true },
}

local function crossed()
  local function choices(key, values) return { rows = lists.map(values, function(value) return { [key] = value } end) } end
  return lists.extend({ { parallel = "ddp" } }, points_of.cartesian {
    choices("wrap", { "module", "size", "none" }), choices("backward_prefetch", { "pre", "post", "none" }),
    choices("forward_prefetch", { false, true }), choices("cpu_offload", { false, true }),
  })
end

--- Which configurations a command line asks for: when it names any choice, one for each wrapper it names.
local function chosen(plan, given)
  if given.memory_optimized then return { { cpu_offload = true } } end
  if given.speed_optimized then return { { forward_prefetch = true, backward_prefetch = "post" } } end
  for _, key in ipairs(M.keys) do
    if given[key] then
      local own = {}
      for _, name in ipairs(M.keys) do own[name] = plan[name] end
      local wrappers = plan.grid.parallel or { plan.parallel or defaults.parallel }
      plan.grid.parallel = nil
      return lists.map(wrappers, function(parallel) return lists.merged(own, { parallel = parallel }) end)
    end
  end
  return given.crossed and crossed() or changes
end

--- Lists that advance together, one entry per configuration.
-- @tparam table plan of moonshard.studies.document
-- @tparam table given flags
function M.plan(plan, given)
  local zip, list, program = {}, chosen(plan, given), points_of.defaults()
  for _, key in ipairs(M.keys) do
    if not plan.grid[key] then
      zip[key] = lists.map(list, function(change)
        -- Options of fsdp mean nothing to ddp, which takes the program's defaults alone.
        local is_ddp = key ~= "parallel" and change.parallel == "ddp"
        return lists.merged(is_ddp and program or defaults, change)[key]
      end)
      plan[key] = nil
    end
  end
  if plan.min_num_params and zip.wrap then
    local own = plan.min_num_params
    zip.min_num_params = lists.map(zip.wrap, function(wrap) return wrap == "size" and own or program.min_num_params end)
    plan.min_num_params = nil
  end
  plan.zip = zip
  if not given.profile then plan.profile = given.no_traces and "phases" or "trace" end
  return plan
end

--- "fsdp_module_pre_prefetch_offload": the name of a configuration's trace folder.
function M.name_of(options)
  if options.parallel == "ddp" then return "ddp" end
  local words = { "fsdp", options.wrap, options.backward_prefetch }
  if options.forward_prefetch then words[#words + 1] = "prefetch" end
  if options.cpu_offload then words[#words + 1] = "offload" end
  if options.whole_first then words[#words + 1] = "whole" end
  return table.concat(words, "_")
end

--- The tutorial's printed rows, of every configuration; with --verbose of all stages.
function M.stage_report(runs, given)
  local parts = {}
  for _, point in ipairs(runs:select("ok")) do
    local lines = stage_rows.lines(point, given.verbose)
    if lines then parts[#parts + 1] = ("%s\n%s"):format(M.name_of(point.options), lines) end
  end
  if #parts == 0 then return "Memory by stage: not recorded (profile = off)" end
  return table.concat(parts, "\n\n")
end

--- Stages, peaks, what the allocator took from the device, time and communication side by side.
function M.speed_table(runs)
  local rows = lists.map(runs.points, function(point)
    local metrics = point.status == "ok" and point.metrics or {}
    local function mib(stage, key) return stage_rows.mib(point, stage, key) end
    return { M.name_of(point.options), point.status, mib("after data"), mib("after model creation"), mib("after warmup"),
      mib("after warmup", "max_allocated_bytes"), mib("after warmup", "reserved_bytes"), mib("after warmup", "max_reserved_bytes"),
      metrics.peak_memory_mb, metrics.median_time_ms, statistics.median_text(point), metrics.comm_work_ms, metrics.comm_exposed_ms }
  end)
  return text_table.new { title = "MiB on rank 0, and the step", rows = rows, notes = { plot_points.modelled_note(runs) },
    columns = { "configuration", "status", "after data", "after model", "after warmup", "max", "reserved", "max reserved", "peak",
      "step ms", "95 % of median", "comm ms", "exposed ms" } }
end

--- What the tutorial prints, in GiB: allocated, the most allocated, reserved, the most reserved.
local tutorial = {
  { "ddp", "after model creation", 9.00048828125, 9.00048828125, 9.001953125, 9.001953125 },
  { "ddp", "after warmup", 25.017333984375, 26.595459938049316, 29.015625, 29.015625 },
  { "fsdp", "after model creation", 9.00048828125, 9.00048828125, 9.001953125, 9.001953125 },
  { "fsdp", "after warmup", 3.0159912109375, 11.016174793243408, 16.15625, 16.15625 },
}
local stage_keys = { "allocated_bytes", "max_allocated_bytes", "reserved_bytes", "max_reserved_bytes" }

--- The tutorial's figures, those of the same program in PyTorch on this machine, and ours, stage by stage. PyTorch's are measured by
-- scripts/studies/fsdp_linear_torch.py where Python has torch.
-- @tparam Runs runs
-- @tparam[opt] table torch rows of the program: parallel, stage, and the keys of stages
function M.against_tutorial(runs, torch)
  local rows = {}
  local function add(parallel, stage, who, values) rows[#rows + 1] = lists.extend({ parallel, stage, who }, values) end
  local function gib(bytes) return bytes and ("%.4f"):format(bytes / 2 ^ 30) or "-" end
  for _, row in ipairs(tutorial) do
    local parallel, stage = row[1], row[2]
    add(parallel, stage, "the tutorial", lists.map({ row[3], row[4], row[5], row[6] }, function(value) return ("%.4f"):format(value) end))
    for _, each in ipairs(torch or {}) do
      if each.parallel == parallel and each.stage == stage then
        add(parallel, stage, "PyTorch here", lists.map(stage_keys, function(key) return gib(each[key]) end))
      end
    end
    for _, point in ipairs(runs:select("ok")) do
      local name = M.name_of(point.options)
      if name == "ddp" and parallel == "ddp" or parallel == "fsdp" and (name == "fsdp_module_pre" or name == "fsdp_module_pre_whole") then
        local found = stage_rows.find(point, stage)
        if found then add(parallel, stage, name, lists.map(stage_keys, function(key) return gib(found[key]) end)) end
      end
    end
  end
  return text_table.new { title = "GiB of one rank, against the tutorial's", rows = rows,
    columns = { "", "stage", "", "allocated", "max allocated", "reserved", "max reserved" },
    notes = { "The tutorial: 8 ranks, batch 8192, 8 x Linear(16384, 16384). PyTorch keeps gradients, and DDP its buckets, from step to "
      .. "step; here gradients are gone when a step ends." } }
end

local function predicted(parallel)
  return package.loaded["moonshard"].rank_memory { ranks = 8, model = "linear", parallel = parallel, batch_size = 8192, device = "cpu" }
end

--- What the tutorial's own run holds per rank, without running it.
function M.predicted_table()
  local rows = lists.map({ "ddp", "fsdp" }, function(parallel)
    local plan = predicted(parallel)
    return { parallel, stage_rows.python_number(plan.pytorch_after_model_bytes / 2 ^ 30),
      stage_rows.python_number(plan.pytorch_after_warmup_bytes / 2 ^ 30), plan.parameter_bytes / 2 ^ 30, plan.gradient_bytes / 2 ^ 30 }
  end)
  return text_table.new { title = "Predicted for 8 ranks, batch 8192, 8 x Linear(16384, 16384), GiB", rows = rows,
    columns = { "", "after model creation", "after warmup", "parameters", "gradients" },
    notes = { "The tutorial prints 9.00048828125 after model creation; after warm-up 25.017 (ddp) and 3.016 (fsdp)." } }
end

--- "rank0.pt.trace.json.gz" for "trace.rank0.json.gz": names that TensorBoard's profiler plugin opens.
function M.trace_name(name)
  local rank, ending = name:match("^trace%.(rank%d+)(%.json.*)$")
  return rank and ("%s.pt.trace%s"):format(rank, ending) or name
end

--- Copies traces of points into traces/<configuration>/, a run each for `tensorboard --logdir DIR/traces`.
-- @treturn {string,...} paths
function M.collect_traces(runs)
  local paths = {}
  for _, point in ipairs(runs:select("ok")) do
    local folder = ("%s/points/%s"):format(runs.path, point.id)
    local ok, names = pcall(native.files.list, folder)
    for _, name in ipairs(ok and names or {}) do
      local trace = name:match("^trace") and shell.read(folder .. "/" .. name)
      if trace then
        paths[#paths + 1] = ("%s/traces/%s/%s"):format(runs.path, M.name_of(point.options), M.trace_name(name))
        native.files.write(paths[#paths], trace)
      end
    end
  end
  return paths
end

--- The first good point of a configuration.
local function find(runs, name)
  return lists.select(runs:select("ok"), function(point) return M.name_of(point.options) == name end)[1]
end

--- A check of two configurations by a figure; `accept` takes both.
-- @tparam[opt] string metric whose noise and reasons the records have
local function compare(of, to, read, accept, unit, metric)
  return function(runs)
    local a, b = find(runs, of), find(runs, to)
    local x, y = a and read(a), b and read(b)
    if not x or not y then return nil, ("needs %s and %s with that figure"):format(of, to) end
    local holds, text = accept(x, y), ("%s %.4g %s, %s %.4g %s"):format(of, x, unit, to, y, unit)
    local interval, missing = statistics.of_ratio(a, b, metric or "")
    if interval then
      text = ("%s; %d %% interval of the ratio %s"):format(text, statistics.level, statistics.text(interval, statistics.ratio_digits))
      if statistics.contains(interval, 1) then return "undecided", text .. " contains 1" end
    elseif missing then
      text = ("%s; %s, so noise is not in the verdict"):format(text, missing)
    end
    local reason = holds == false and metric and reasons.of_ratio(a, b, metric, false, 1)
    return holds, reason and ("%s; %s"):format(text, reason) or text
  end
end

local function less(x, y) return x < y end
local function stage(name)
  return function(point) return stage_rows.allocated_mib(point, name) end
end
local function device_peak(point) return point.options.device:match("^cuda") and point.metrics.peak_memory_mb or nil end

--- What PyTorch holds at a stage on this machine, in GiB; nil where it was not measured at the tutorial's size.
local function torch_gib(runs, parallel, stage_name)
  for _, row in ipairs(M.torch_rows(runs) or {}) do
    if row.parallel == parallel and row.stage == stage_name then return row.allocated_bytes / 2 ^ 30 end
  end
end

--- Measured at full size on rank 0, in GiB; nil elsewhere: the tutorial's figures are of its own sizes.
local function measured_gib(runs, name, stage_name)
  local point = find(runs, name)
  local is_full = point and point.options.model == "linear" and point.options.batch_size == 8192 and plot_points.ranks(point) == 8
  return is_full and stage_rows.allocated_mib(point, stage_name) and stage_rows.allocated_mib(point, stage_name) / 1024 or nil
end

M.expect = {
  { claim = "after model creation 9.00048828125 GiB are allocated, the whole model made first (measured)", check = function(runs)
    local ddp = measured_gib(runs, "ddp", "after model creation")
    local whole = measured_gib(runs, "fsdp_module_pre_whole", "after model creation")
    if not ddp or not whole then return nil, "needs ddp and fsdp_module_pre_whole at full size (8 ranks, batch 8192)" end
    return ddp == 9.00048828125 and whole == 9.00048828125,
      ("ddp %s GiB, fsdp %s GiB"):format(stage_rows.python_number(ddp), stage_rows.python_number(whole))
  end },
  { claim = "after model creation 9.00048828125 GiB are allocated (PyTorch on this machine, measured)", check = function(runs)
    local said = ("our prediction: %s GiB"):format(stage_rows.python_number(predicted("ddp").pytorch_after_model_bytes / 2 ^ 30))
    local ddp, fsdp = torch_gib(runs, "ddp", "after model creation"), torch_gib(runs, "fsdp", "after model creation")
    if not ddp or not fsdp then return nil, "PyTorch was not measured (--with-torch, on a GPU, at full size); " .. said end
    return ddp == 9.00048828125 and fsdp == 9.00048828125,
      ("ddp %s GiB, fsdp %s GiB; %s"):format(stage_rows.python_number(ddp), stage_rows.python_number(fsdp), said)
  end },
  { claim = "after warm-up DDP holds 25.0 GiB and FSDP 3.0 GiB (PyTorch on this machine, measured; 0.1 GiB of slack)",
    check = function(runs)
    local said = ("our prediction: %.4f GiB and %.4f GiB"):format(predicted("ddp").pytorch_after_warmup_bytes / 2 ^ 30,
      predicted("fsdp").pytorch_after_warmup_bytes / 2 ^ 30)
    local ddp, fsdp = torch_gib(runs, "ddp", "after warmup"), torch_gib(runs, "fsdp", "after warmup")
    if not ddp or not fsdp then return nil, "PyTorch was not measured (--with-torch, on a GPU, at full size); " .. said end
    return math.abs(ddp - 25) < 0.1 and math.abs(fsdp - 3) < 0.1, ("%.4f GiB and %.4f GiB; %s"):format(ddp, fsdp, said)
  end },
  { claim = "after model creation DDP and FSDP hold the same (the whole model made first, as the tutorial does)",
    check = compare("ddp", "fsdp_module_pre_whole", stage "after model creation",
    function(x, y) return x == y end, "MiB") },
  { claim = "after warm-up FSDP holds less than DDP", check = compare("fsdp_module_pre", "ddp", stage "after warmup", less, "MiB") },
  { claim = "FSDP's peak is below DDP's", check = compare("fsdp_module_pre", "ddp", function(point) return point.metrics.peak_memory_mb end,
    less, "MiB", "peak_memory_bytes") },
  { claim = "memory-optimised (cpu_offload) needs the least GPU memory", check = compare("fsdp_module_pre_offload", "fsdp_module_pre",
    device_peak, less, "MiB", "peak_memory_bytes") },
  { claim = "speed-optimised (forward prefetch, BACKWARD_POST) is faster than the default", check = compare("fsdp_module_post_prefetch",
    "fsdp_module_pre", function(point) return point.metrics.median_time_ms end, less, "ms", "median_time_ms") },
}

return M
