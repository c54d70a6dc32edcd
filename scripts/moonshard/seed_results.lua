--- Folders that hold nothing but result files of the profiling suites ({mode}_seq{N}_result.json,
-- {experiment}_result.json), from this program or from another: read as results, so that they can be drawn and compared.
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}

local function option_of(record)
  local options = lists.merged(type(record.config) == "table" and record.config)
  options.model = options.model_name or options.model or "model"
  options.mode = record.mode or record.experiment
  options.seq_length = record.seq_length or options.seq_length
  options.batch_size = record.batch_size or options.batch_size or 0
  options.nproc = record.num_gpus
  return options
end

-- The DiT suite's components under our names; the engine's temporaries are one there.
local owner_of = { model_parameters = "parameters", optimizer_states = "optimizer_state", activation_hooks = "engine_kept",
  temp_matrices = "engine_temporaries" }

--- MiB by component, as the DiT suite writes it, as our list of owners.
local function breakdown_of(record, peak_bytes)
  if type(record.breakdown) ~= "table" then return nil end
  local list, sum = {}, 0
  for key, value in pairs(record.breakdown) do
    if type(value) == "number" then
      local name = key:gsub("_mb$", "")
      list[#list + 1] = { owner = owner_of[name] or name, bytes = value * 2 ^ 20 }
      sum = sum + value * 2 ^ 20
    end
  end
  table.sort(list, function(a, b) return a.owner < b.owner end)
  return { peak_bytes = peak_bytes, breakdown = list, rest_bytes = math.max(0, peak_bytes - sum) }
end

--- Stages of the suite's snapshots as rows of ours.
local function stages_of(record)
  if type(record.snapshots) ~= "table" then return nil end
  local function bytes(mib) return type(mib) == "number" and mib * 2 ^ 20 or nil end
  local list = {}
  for i, row in ipairs(record.snapshots) do
    if type(row) == "table" then
      list[#list + 1] = { stage = tostring(row.stage or row.name or i), rank = 0, allocated_bytes = bytes(row.allocated_mb),
        max_allocated_bytes = bytes(row.max_allocated_mb), reserved_bytes = bytes(row.reserved_mb) }
    end
  end
  return list
end

local function point_of(name, record)
  local peak_mb = tonumber(record.peak_memory_mb)
  local metrics = { peak_memory_mb = peak_mb, peak_memory_gb = peak_mb and peak_mb / 1024,
    peak_memory_bytes = peak_mb and peak_mb * 2 ^ 20, avg_time_ms = record.avg_time_ms, median_time_ms = record.avg_time_ms }
  local options = option_of(record)
  local result = { options = options, metrics = metrics, status = "ok", memory_stages = stages_of(record),
    memory = breakdown_of(record, metrics.peak_memory_bytes or 0) }
  return { id = (name:gsub("_result%.json$", "")), file = name, status = "ok", error = "", options = options,
    asked = { mode = options.mode }, metrics = metrics, result = result }
end

--- The results in such a folder.
-- @treturn table as native.records.load gives; nil when no such file is there
function M.load(path)
  local ok, names = pcall(native.files.list, path)
  if not ok then return nil end
  local points = {}
  for _, name in ipairs(names) do
    local good, record = false, nil
    if name:match("_result%.json$") then good, record = pcall(native.files.read_json, path .. "/" .. name) end
    if good and type(record) == "table" and tonumber(record.avg_time_ms) then points[#points + 1] = point_of(name, record) end
  end
  if #points == 0 then return nil end
  -- Modes in the order of the suites: the baseline first.
  local rank = { no_dp = 1, vanilla = 1, none = 1 }
  table.sort(points, function(a, b)
    local ra, rb = rank[a.options.mode] or 2, rank[b.options.mode] or 2
    if ra ~= rb then return ra < rb end
    if a.options.mode ~= b.options.mode then return tostring(a.options.mode) < tostring(b.options.mode) end
    return (a.options.seq_length or 0) < (b.options.seq_length or 0)
  end)
  local lengths = lists.unique(lists.map(points, function(point) return point.options.seq_length or 0 end))
  -- Overhead is looked up by the engines' own names.
  local canonical = require("moonshard.analyze.overhead").canonical_mode
  for _, point in ipairs(points) do point.options.mode = canonical(point.options.mode) end
  return { path = path, name = path:match("([^/]+)/*$") or "", created = "", axes = #lengths > 1 and { "mode", "seq_length" } or { "mode" },
    environment = {}, points = points, plots = {}, problems = {}, only_seed_files = true }
end

return M
