--- The result file of the DiT suite (document 004): experiment, config, peak_memory_mb, avg_time_ms, breakdown, snapshots.
local M = {}

--- Our owners under the suite's names for memory components; others keep theirs, so that a breakdown adds up.
M.component_of = {
  parameters = "model_parameters", optimizer_state = "optimizer_states", gradients = "gradients", engine_kept = "activation_hooks",
  norm_samples = "norm_samples", temporaries_ggt = "temp_matrices", temporaries_aat = "temp_matrices", engine_temporaries = "temp_matrices",
}

local function mib(bytes) return bytes and bytes / 2 ^ 20 end

local function breakdown_of(record)
  local sums = { model_parameters_mb = 0, optimizer_states_mb = 0, gradients_mb = 0, activation_hooks_mb = 0, norm_samples_mb = 0,
    temp_matrices_mb = 0 }
  local list = record.memory and record.memory.breakdown
  if not list then return nil end
  for _, row in ipairs(list) do
    local key = (M.component_of[row.owner] or row.owner) .. "_mb"
    sums[key] = (sums[key] or 0) + mib(row.bytes)
  end
  return sums
end

--- Stages of the run, then phases of the detailed step: allocated and peak.
local function snapshots_of(record)
  local list, is_phase, has_phases = {}, {}, false
  local phases = record.memory and record.memory.phases or {}
  for _, row in ipairs(phases) do is_phase[row.phase] = true end
  for _, row in ipairs(record.memory_stages or {}) do
    if (row.rank or 0) == 0 then
      has_phases = has_phases or is_phase[row.stage]
      local stage = is_phase[row.stage] and "step: " .. row.stage or row.stage
      list[#list + 1] = { stage = stage, allocated_mb = mib(row.allocated_bytes), max_allocated_mb = mib(row.max_allocated_bytes),
        reserved_mb = mib(row.reserved_bytes), max_reserved_mb = mib(row.max_reserved_bytes), cpu_rss_mb = mib(row.rss_bytes) }
    end
  end
  for _, row in ipairs(has_phases and {} or phases) do
    list[#list + 1] = { stage = "step: " .. row.phase, allocated_mb = mib(row.allocated_bytes), max_allocated_mb = mib(row.peak_bytes) }
  end
  return list
end

local in_name = { "attention", "image_size", "patch_size", "batch_size", "grad_accum", "nproc", "world", "num_layers" }

--- File name and table for a good record; axes other than the mode that the sweep asks for join the name.
-- @tparam table record a point's result, or a point with its result in it
-- @tparam[opt] table point its `asked` are the values of the sweep's axes in the script's spelling
function M.seed_result(record, point)
  local asked = point and point.asked or {}
  local options, metrics = record.options, record.metrics
  local result = record.result or record
  local experiment = asked.mode or ({ none = "vanilla", flash = "flash_clip", flash_bookkeeping = "flash_clip_bookkeeping" })[options.mode]
    or options.mode
  local name = experiment
  for _, axis in ipairs(in_name) do
    if asked[axis] ~= nil then name = ("%s_%s%s"):format(name, axis, tostring(asked[axis]):gsub("[^%w%.-]", "_")) end
  end
  local config = { batch_size = options.batch_size, num_iter = options.iters, warmup_iter = options.warmup, model = options.model,
    num_tokens = options.seq_length, learning_rate = options.lr, sigma = options.noise_multiplier, max_grad_norm = options.max_grad_norm,
    optimizer = options.optimizer, dtype = options.dtype }
  for _, key in ipairs { "image_size", "patch_size", "in_channels", "num_classes", "hidden_dim", "num_layers", "num_heads", "attention",
    "grad_accum", "seed" } do config[key] = options[key] end
  local world = type(options.world) == "string" and options.world:match("^fake:%d+$") or nil
  return name .. "_result.json", { experiment = experiment, config = config, modelled_world = world,
    peak_memory_mb = metrics.peak_memory_mb,
    avg_time_ms = metrics.avg_time_ms, breakdown = breakdown_of(result), snapshots = snapshots_of(result) }
end

return M
