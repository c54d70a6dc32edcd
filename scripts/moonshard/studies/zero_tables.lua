--- Tables of the ZeRO comparison (document 002): the CSV with every configuration, and the raw metrics as JSON.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local text_table = require "moonshard.text_table"

local M = {}

local figures = {
  { "tokens_per_sec", "tokens_per_s" }, { "samples_per_sec", "samples_per_s" }, { "gpu_utilization_percent", "gpu_utilization_percent" },
  { "peak_memory_gb", "peak_memory_gb" }, { "avg_memory_gb", "avg_memory_gb" }, { "comm_time_ms", "comm_work_ms" },
  { "comm_exposed_ms", "comm_exposed_ms" }, { "comm_overlap_percent", "comm_overlap_percent" },
  { "comm_overhead_percent", "comm_share_percent" }, { "comm_mb", "comm_mb" }, { "data_overhead_percent", "data_share_percent" },
  { "cpu_percent", "cpu_percent" }, { "mfu_percent", "mfu_percent" },
  { "avg_step_time_ms", "avg_time_ms" }, { "median_step_time_ms", "median_time_ms" }, { "end_to_end_s", "end_to_end_s" },
}

--- Memory averaged over the time of a watched step. Records of older versions have no such figure, but a timeline: each sample is
-- held until the next.
function M.average_memory_gb(point)
  local mean = plot_points.metric(point, "avg_memory_bytes")
  if mean then return mean / 2 ^ 30 end
  local timeline = plot_points.part(point, "memory", "timeline")
  local ms, totals, sum = plot_points.list(timeline.ms), plot_points.list(timeline.total), 0
  if #ms < 2 or #ms ~= #totals or ms[#ms] <= ms[1] then return nil end
  for i = 1, #ms - 1 do sum = sum + totals[i] * (ms[i + 1] - ms[i]) end
  return sum / (ms[#ms] - ms[1]) / 2 ^ 30
end

local function figure_of(point, key)
  if key == "avg_memory_gb" then return M.average_memory_gb(point) end
  if key == "comm_mb" then return point.metrics.comm_bytes and point.metrics.comm_bytes / 2 ^ 20 end
  return point.metrics[key]
end

--- One row per configuration.
function M.table(runs)
  local columns = { "strategy", "batch_size", "grad_accum_steps", "effective_batch_size", "num_gpus", "status", "modelled" }
  local rows = lists.map(runs.points, function(point)
    local options, ranks = point.options, plot_points.ranks(point)
    local effective = options.batch_size * options.grad_accum * ranks
    local row = { options.sharding, options.batch_size, options.grad_accum, effective, ranks, point.status,
      plot_points.modelled_ranks(point) and "communication" or "" }
    for i, figure in ipairs(figures) do row[#columns + i] = point.status == "ok" and figure_of(point, figure[2]) or nil end
    return row
  end)
  return text_table.new { columns = lists.extend({}, columns, lists.column(figures, 1)), rows = rows }
end

--- The few columns that fit a screen.
function M.short(runs)
  local unit, factor = require("moonshard.analyze.overhead").memory_unit(runs)
  local columns = { "strategy", "batch", "accum", "status", "tokens/s", "peak " .. unit, "comm ms", "exposed ms", "GPU %", "data %" }
  local rows = lists.map(runs.points, function(point)
    local metrics = point.status == "ok" and point.metrics or {}
    return { point.options.sharding, point.options.batch_size, point.options.grad_accum, point.status, metrics.tokens_per_s,
      metrics.peak_memory_mb and metrics.peak_memory_mb * factor, metrics.comm_work_ms, metrics.comm_exposed_ms,
      metrics.gpu_utilization_percent, metrics.data_share_percent }
  end)
  return text_table.new { title = "ZeRO-2 and ZeRO-3", columns = columns, rows = rows, notes = { plot_points.modelled_note(runs) } }
end

--- "zero2_bs4_accum2": a configuration's name in files and keys.
function M.key(point)
  return ("%s_bs%d_accum%d"):format(point.options.sharding, point.options.batch_size, point.options.grad_accum)
end

--- The result file of a configuration: the document's metrics under the names of its table.
-- @tparam table record a point's result
-- @tparam table point its options and status
-- @treturn string name, with the strategy in it
-- @treturn table
function M.seed_result(record, point)
  local whole = { options = record.options, metrics = record.metrics, result = record.result or record, status = "ok", id = point.id }
  local content = { strategy = whole.options.sharding, key = M.key(whole), batch_size = whole.options.batch_size,
    gradient_accumulation_steps = whole.options.grad_accum, num_gpus = plot_points.ranks(whole), mode = whole.options.mode,
    peak_memory_mb = whole.metrics.peak_memory_mb, avg_time_ms = whole.metrics.avg_time_ms,
    modelled = plot_points.modelled_ranks(whole) and "communication" or nil,
    config = { model = whole.options.model, max_length = whole.options.seq_length, num_steps = whole.options.iters,
      learning_rate = whole.options.lr, optimizer = whole.options.optimizer, param_dtype = whole.options.param_dtype,
      data_folder = whole.options.data_folder, tokenizer = whole.options.tokenizer } }
  for _, figure in ipairs(figures) do content[figure[1]] = figure_of(whole, figure[2]) end
  return M.key(whole) .. "_result.json", content
end

--- Writes comparison_table.csv and raw_metrics.json into a run folder.
-- @tparam[opt] table max_batch sharding -> result of ms.find_max_batch
-- @tparam[opt] boolean with_copies also beside the run folder, where the document has them
-- @treturn {string,...} paths
function M.write(runs, max_batch, with_copies)
  local list = lists.map(runs.points, function(point)
    return { key = M.key(point), strategy = point.options.sharding, num_gpus = plot_points.ranks(point),
      modelled = plot_points.modelled_ranks(point) and "communication" or nil, id = point.id, status = point.status,
      error = point.error ~= "" and point.error or nil, options = point.options,
      metrics = point.metrics, time = point.result.time, comm = point.result.comm, ranks = point.result.ranks }
  end)
  local csv = M.table(runs):to("csv")
  local json = native.records.to_json { schema_version = 1, runs = list, max_batch_size = max_batch }
  local paths, folders = {}, { runs.path }
  if with_copies then folders[2] = runs.path:match("^(.*)/[^/]+/*$") or "." end
  for _, folder in ipairs(folders) do
    for name, text in pairs { ["comparison_table.csv"] = csv, ["raw_metrics.json"] = json } do
      native.files.write(folder .. "/" .. name, text)
      paths[#paths + 1] = folder .. "/" .. name
    end
  end
  table.sort(paths)
  return paths
end

return M
