--- Configurations, tables and claims of the FSDP tutorial (document 003).
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local points_of = require "moonshard.sweep.points"
local shell = require "moonshard.shell"
local stage_rows = require "moonshard.studies.stage_rows"
local text_table = require "moonshard.text_table"

local M = {}

--- The options that make a configuration, with the tutorial's defaults: no forward prefetch.
M.keys = { "parallel", "wrap", "backward_prefetch", "forward_prefetch", "cpu_offload" }
local defaults = { parallel = "fsdp", wrap = "module", backward_prefetch = "pre", forward_prefetch = false, cpu_offload = false }

local changes = {
  { parallel = "ddp" }, {}, { wrap = "size" }, { wrap = "none" }, { backward_prefetch = "post" }, { backward_prefetch = "none" },
  { forward_prefetch = true }, { cpu_offload = true }, { forward_prefetch = true, backward_prefetch = "post" },
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

--- Stages, time and communication side by side.
function M.speed_table(runs)
  local rows = lists.map(runs.points, function(point)
    local metrics = point.status == "ok" and point.metrics or {}
    local function mib(stage) return stage_rows.allocated_mib(point, stage) end
    return { M.name_of(point.options), point.status, mib("after data"), mib("after model creation"), mib("after warmup"),
      metrics.peak_memory_mb, metrics.median_time_ms, metrics.comm_work_ms, metrics.comm_exposed_ms }
  end)
  return text_table.new { title = "MiB allocated on rank 0, and the step", rows = rows, columns = { "configuration", "status", "after data",
    "after model", "after warmup", "peak", "step ms", "comm ms", "exposed ms" } }
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

--- Copies traces of points into traces/<configuration>/, where a viewer of traces finds them by name.
-- @treturn {string,...} paths
function M.collect_traces(runs)
  local paths = {}
  for _, point in ipairs(runs:select("ok")) do
    local folder = ("%s/points/%s"):format(runs.path, point.id)
    local ok, names = pcall(native.files.list, folder)
    for _, name in ipairs(ok and names or {}) do
      local trace = name:match("^trace") and shell.read(folder .. "/" .. name)
      if trace then
        paths[#paths + 1] = ("%s/traces/%s/%s"):format(runs.path, M.name_of(point.options), name)
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
local function compare(of, to, read, accept, unit)
  return function(runs)
    local a, b = find(runs, of), find(runs, to)
    local x, y = a and read(a), b and read(b)
    if not x or not y then return nil, ("needs %s and %s with that figure"):format(of, to) end
    return accept(x, y), ("%s %.4g %s, %s %.4g %s"):format(of, x, unit, to, y, unit)
  end
end

local function less(x, y) return x < y end
local function stage(name)
  return function(point) return stage_rows.allocated_mib(point, name) end
end
local function device_peak(point) return point.options.device:match("^cuda") and point.metrics.peak_memory_mb or nil end

M.expect = {
  { claim = "after model creation 9.00048828125 GiB are allocated (8 ranks, full size, predicted)", check = function()
    local value = predicted("ddp").pytorch_after_model_bytes / 2 ^ 30
    return value == 9.00048828125, stage_rows.python_number(value) .. " GiB"
  end },
  { claim = "after warm-up DDP holds 25.0 GiB and FSDP 3.0 GiB (8 ranks, full size, predicted; 0.1 GiB of slack)", check = function()
    local ddp, fsdp = predicted("ddp").pytorch_after_warmup_bytes / 2 ^ 30, predicted("fsdp").pytorch_after_warmup_bytes / 2 ^ 30
    return math.abs(ddp - 25) < 0.1 and math.abs(fsdp - 3) < 0.1, ("%.4f GiB and %.4f GiB"):format(ddp, fsdp)
  end },
  { claim = "after model creation DDP and FSDP hold the same", check = compare("ddp", "fsdp_module_pre", stage "after model creation",
    function(x, y) return x == y end, "MiB") },
  { claim = "after warm-up FSDP holds less than DDP", check = compare("fsdp_module_pre", "ddp", stage "after warmup", less, "MiB") },
  { claim = "FSDP's peak is below DDP's", check = compare("fsdp_module_pre", "ddp", function(point) return point.metrics.peak_memory_mb end,
    less, "MiB") },
  { claim = "memory-optimised (cpu_offload) needs the least GPU memory", check = compare("fsdp_module_pre_offload", "fsdp_module_pre",
    device_peak, less, "MiB") },
  { claim = "speed-optimised (forward prefetch, BACKWARD_POST) is faster than the default", check = compare("fsdp_module_post_prefetch",
    "fsdp_module_pre", function(point) return point.metrics.median_time_ms end, less, "ms") },
}

return M
