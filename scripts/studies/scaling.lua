--- Question: how do the five documents' workloads scale to 1,024 GPUs: at a fixed batch (strong), at a fixed batch per GPU (weak), and by
-- the link between nodes? Everything is simulated by ms.plan; nothing runs, and every title and column says so.
-- Inputs: none (a machine profile). Outputs: a run folder of modelled records, scaling.csv, and the figures strong_scaling, weak_scaling
-- and scaling_by_link.
-- Run: moonshard sweep scaling [--gpu h200] [--gpus 8] [--node_link infiniband] [--nics N] [--output_dir results] [--all_records] [--help]
local ms = require "moonshard"
local command_line = require "moonshard.arguments"
local lists = require "moonshard.lists"
local machines = require "moonshard.plan_machines"
local native = require "moonshard.native"
local plan_records = require "moonshard.plan_records"
local plot_files = require "moonshard.plot_files"

local flags = {
  { name = "gpu", kind = "text", doc = "machine profile (h200)" },
  { name = "gpus", kind = "int", doc = "GPUs of a node (8)" },
  { name = "node_link", kind = "text", doc = "link between nodes (infiniband)" },
  { name = "nics", kind = "number", doc = "network adapters of a node (one per GPU)" },
  { name = "jitter", kind = "number", doc = "ranks whose operations vary; all are then simulated" },
  { name = "seed", kind = "int", doc = "of these (0)" },
  { name = "output_dir", kind = "text", doc = "folder for the run folder (results)" },
  { name = "all_records", kind = "boolean", doc = "a record of every point, not of weak scaling to 8 and 1,024 GPUs alone" },
  { name = "help", kind = "boolean", doc = "print this text" },
}
local given = command_line.parse("scaling", { ... }, flags)
if given.help then
  print("usage: moonshard sweep scaling [options]\n\nThe five documents' workloads on up to 1,024 simulated GPUs; nothing runs.\n\n"
    .. command_line.describe(flags))
  return
end

local gpus = given.gpus or 8
local machine = machines.find(given.gpu or "h200", 1)

--- What the documents train, at their full size; `batch` is of a GPU, `whole` the fixed batch of strong scaling, `engines` or `shardings`
-- two that the document compares.
local workloads = {
  { name = "000 Llama 3.1 8B", engines = { "none", "flash" }, batch = 2, whole = 256, model = "llama3.1-8b", task = "classify",
    optimizer = "adamw", seq_length = 2048 },
  { name = "001 Llama 3.2 1B", engines = { "flash", "flash_bookkeeping" }, batch = 4, whole = 256, model = "llama3.2-1b",
    task = "classify", optimizer = "sgd", seq_length = 4096 },
  { name = "002 Qwen 1.5 1.8B", engines = { "none" }, shardings = { "zero2", "zero3" }, batch = 4, whole = 256,
    model = "qwen1.5-1.8b", task = "lm", optimizer = "adamw", seq_length = 2048 },
  { name = "003 linear", engines = { "none" }, shardings = { "zero2", "zero3" }, batch = 8192, whole = 262144,
    model = "linear", task = "regress", optimizer = "sgd", wrap = "size", param_dtype = "float32", seq_length = 1 },
  { name = "004 DiT-L/8", engines = { "none", "bookkeeping" }, batch = 16, whole = 1024, model = "dit-l/8", task = "denoise",
    optimizer = "adam", seq_length = 1024 },
}

local all_ranks = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 }
local recorded = lists.set { 8, 1024 }
local links = {
  { name = "8 x InfiniBand", node_link = "infiniband", nics = gpus }, { name = "2 x InfiniBand", node_link = "infiniband", nics = 2 },
  { name = "1 x InfiniBand", node_link = "infiniband", nics = 1 }, { name = "100 GbE", node_link = "ethernet100", nics = 1 },
  { name = "10 GbE", node_link = "ethernet10", nics = 1 },
}
local ranks_by_link = 64

local function cluster_of(ranks, link)
  return { machine = machine.file, gpus = math.min(ranks, gpus), nodes = math.ceil(ranks / gpus), node_link = (link or given).node_link,
    nics = ranks > gpus and (link or given).nics or nil, jitter = ranks > 1 and given.jitter or nil, seed = given.seed or 0 }
end

--- Options of one configuration on so many ranks; `batch` of a rank in a step.
local function options_of(workload, case, ranks, batch)
  local options = { model = workload.model, task = workload.task, mode = case.mode, optimizer = workload.optimizer,
    seq_length = workload.seq_length, dtype = "float32", param_dtype = workload.param_dtype or "bfloat16",
    parallel = ranks > 1 and "fsdp" or "none", noise_multiplier = 1 }
  options.batch_size = math.min(batch, workload.batch)
  options.grad_accum = batch / options.batch_size
  if ranks > 1 then
    options.sharding, options.wrap = case.sharding, workload.wrap
    -- Parts inside of a node, copies across: what several nodes of one link are for.
    if ranks > gpus then options.replicate = ranks / gpus end
  end
  return options
end

local function cases_of(workload)
  local cases = {}
  for _, mode in ipairs(workload.engines) do
    for _, sharding in ipairs(workload.shardings or { "zero3" }) do
      cases[#cases + 1] = { mode = mode, sharding = sharding, name = workload.shardings and sharding or mode }
    end
  end
  return cases
end

local rows, entries = {}, {}

local function add(kind, workload, case, ranks, batch, link)
  local options, cluster = options_of(workload, case, ranks, batch), cluster_of(ranks, link)
  local plan = native.plan.predict(options, cluster)
  rows[#rows + 1] = { kind = kind, workload = workload.name, case = case.name, ranks = ranks, link = link and link.name or "",
    batch = batch * ranks, step_ms = plan.step_ms, samples_per_s = plan.samples_per_s, exposed_ms = plan.exposed_ms,
    communication_ms = plan.communication_ms, peak_memory_bytes = plan.peak_memory_bytes, fits = plan.fits }
  if given.all_records or kind == "weak" and recorded[ranks] then
    entries[#entries + 1] = { options = options, cluster = cluster, machine = machine }
  end
end

for _, workload in ipairs(workloads) do
  for _, case in ipairs(cases_of(workload)) do
    for _, ranks in ipairs(all_ranks) do
      if ranks <= workload.whole then add("strong", workload, case, ranks, workload.whole / ranks) end
    end
    for _, ranks in ipairs(all_ranks) do add("weak", workload, case, ranks, workload.batch) end
    for _, link in ipairs(links) do add("link", workload, case, ranks_by_link, workload.batch, link) end
  end
end

-- ---- figures ------------------------------------------------------------------------------------------------------------------------

local function select(kind, workload, case)
  return lists.select(rows, function(row)
    return row.kind == kind and row.workload == workload.name and row.case == case.name
  end)
end

local function status_of(row) return row.fits and "ok" or "oom" end

--- Samples per second, over those of one rank; a configuration that needs more memory than there is has no figure.
local function series_of(kind, workload, value)
  return lists.map(cases_of(workload), function(case)
    local own = select(kind, workload, case)
    local base = lists.select(own, function(row) return row.fits end)[1]
    return { name = case.name, x = lists.map(own, function(row) return row.ranks end),
      y = lists.map(own, function(row) return row.fits and base and value(row, base) or native.null end),
      status = lists.map(own, status_of) }
  end)
end

local function ideal(most) return { text = "ideal", x = { 1, most }, y = { 1, most } } end

local function percent(part, whole) return math.floor(1000 * part / whole + 0.5) / 10 end

local function figure(title, note, panels)
  return { schema_version = 1, title = title .. " (modelled)", note = note, width = 1380, height = 760, columns = 3, panels = panels }
end

local function note_of(what, link)
  local text = "Modelled by ms.plan, nothing was measured: %s, %d GPUs a node with NVLink%s; parts inside of a node, copies across. %s"
  return text:format(machine.device, gpus, link and ", between nodes " .. link or "", what)
end
local between = ("%s, %s"):format(given.node_link or "infiniband", given.nics and given.nics .. " adapters" or "an adapter per GPU")

local strong_note = note_of("Samples per second over those of one GPU.", between)
local strong = figure("Strong scaling: one batch on more GPUs", strong_note, lists.map(workloads, function(workload)
  return { kind = "lines", title = ("%s, batch %d"):format(workload.name, workload.whole),
    x = { label = "GPUs", scale = "log" }, y = { label = "modelled speed-up", scale = "log" },
    references = { ideal(math.min(workload.whole, all_ranks[#all_ranks])) },
    series = series_of("strong", workload, function(row, base)
      return base.ranks * row.samples_per_s / base.samples_per_s
    end) }
end))

local weak_note = note_of("Speed of a GPU over that of one alone.", between)
local weak = figure("Weak scaling: the same batch on every GPU", weak_note, lists.map(workloads, function(workload)
  return { kind = "lines", title = ("%s, batch %d a GPU"):format(workload.name, workload.batch), x = { label = "GPUs", scale = "log" },
    y = { label = "modelled speed", unit = "%", min = 0, max = 115 },
    series = series_of("weak", workload, function(row, base)
      return percent(row.samples_per_s / row.ranks, base.samples_per_s / base.ranks)
    end) }
end))

local by_link = figure(("Scaling by link: %d GPUs"):format(ranks_by_link),
  note_of("Speed of a GPU over that in one node."), lists.map(workloads, function(workload)
  local names = lists.map(links, function(link) return link.name end)
  local places = {}
  for i in ipairs(links) do places[i] = i - 1 end
  return { kind = "bars", title = workload.name, x = { label = "link of a node", categories = names },
    y = { label = "speed", unit = "%" }, series = lists.map(cases_of(workload), function(case)
      local own = select("link", workload, case)
      local alone = lists.select(select("weak", workload, case), function(row) return row.ranks <= gpus and row.fits end)
      local base = alone[#alone]
      return { name = case.name, x = places, y = lists.map(own, function(row)
        return row.fits and base and percent(row.samples_per_s / row.ranks, base.samples_per_s / base.ranks) or native.null
      end), status = lists.map(own, status_of) }
    end) }
end))

-- ---- files --------------------------------------------------------------------------------------------------------------------------

local path = plan_records.write { name = "scaling_modelled", out = given.output_dir, steps = given.jitter and 5 or 1, traces = false,
  axes = { "model", "mode", "sharding", "nodes", "world" }, entries = entries }
local writer = native.records.attach(path)
local columns = { "kind", "workload", "case", "ranks", "link", "batch", "step_ms", "samples_per_s", "exposed_ms", "communication_ms",
  "peak_memory_bytes", "fits" }
local lines = { "modelled," .. table.concat(columns, ",") }
for _, row in ipairs(rows) do
  lines[#lines + 1] = "all," .. table.concat(lists.map(columns, function(name)
    local value = row[name]
    return type(value) == "number" and ("%.6g"):format(value) or tostring(value)
  end), ",")
end
native.records.write_file(writer, "scaling.csv", table.concat(lines, "\n") .. "\n")
local jobs = {}
for name, spec in pairs { strong_scaling = strong, weak_scaling = weak, scaling_by_link = by_link } do
  native.records.write_plot(writer, name, spec)
  local base = ("%s/visualizations/%s"):format(path, name)
  jobs[#jobs + 1] = { spec = base .. ".plot.json", out = base .. ".png" }
end
local drawn, why = plot_files.draw_png(jobs, { scale = 1 })
print(("%d predictions, %d records: %s"):format(#rows, #entries, path))
if not drawn then print("figures were not drawn: " .. tostring(why)) end
print(ms.load(path))
