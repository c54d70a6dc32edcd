--- Optimisations that the guide on flash clipping (document 001) advises, as variants of options here: the first lacks
-- the optimisation, the last has it. What this runtime always does has its counterpart in an engine that does not.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local shell = require "moonshard.shell"
local statistics = require "moonshard.analyze.statistics"
local text_table = require "moonshard.text_table"

local M = {}

--- name, what is compared, and the variants. Options that a variant does not name are the sweep's.
M.list = {
  { name = "async_norms", about = "norms are summed over ranks and waited for (norm_reduce = sum), against norms that nothing waits for: "
      .. "a rank's own samples need no sum, and those for statistics travel on a group of their own (norm_reduce = local)",
    variants = { { norm_reduce = "sum" }, { norm_reduce = "local" } } },
  { name = "grouped_collectives", about = "ddp with a collective per parameter (bucket_mb = 0.001), against 25 MiB per collective",
    variants = { { parallel = "ddp", bucket_mb = 0.001 }, { parallel = "ddp", bucket_mb = 25 } } },
  { name = "eager_cleanup", about = "what a layer hands over is kept until the factors are known (flash_bookkeeping), against freed as "
      .. "soon as its norm is there (flash, which always does that and pays a second pass)",
    variants = { { mode = "flash_bookkeeping" }, { mode = "flash" } } },
  { name = "streaming_norms", about = "every sample's gradient is stored and its norm taken from that (materialize), against one "
      .. "running sum of squares per sample, layer by layer (flash, which always does that)",
    variants = { { mode = "materialize" }, { mode = "flash" } } },
  { name = "checkpointing", about = "activations are kept (checkpointing = none), against run again in backward (block)",
    variants = { { checkpointing = "none" }, { checkpointing = "block" } } },
  { name = "algorithm", about = "flash norms by tiles of positions (input_length), by tiles of width, and the cheaper per layer (auto)",
    variants = { { flash_algorithm = "input_length" }, { flash_algorithm = "width" }, { flash_algorithm = "auto" } } },
  { name = "tile_size", about = "flash norms with tiles of 32, 128 and 512, and the size that the runtime chooses (0)",
    variants = { { tile_size = 32 }, { tile_size = 128 }, { tile_size = 512 }, { tile_size = 0 } } },
  { name = "fusion", about = "the same engine by plain operations, one launch each (kernels = reference), against fused kernels (auto); "
      .. "on a CPU both run plain operations", variants = { { kernels = "reference" }, { kernels = "auto" } } },
}

--- Names, for the flag and its errors.
function M.names() return lists.column(M.list, "name") end

function M.find(name)
  return lists.select(M.list, function(each) return each.name == name end)[1]
end

--- Turns a plan of a sweep into one over the variants of an optimisation.
-- @tparam table plan with grid; changed
-- @tparam table optimization of M.list
function M.apply(plan, optimization)
  local mode = plan.mode or "flash_fsdp"
  plan.grid.mode, plan.zip, plan.mode = nil, {}, mode
  plan.norm_reduce = nil  -- local, unless it is what is compared
  for _, variant in ipairs(optimization.variants) do
    for key in pairs(variant) do
      plan.zip[key], plan[key], plan.grid[key] = plan.zip[key] or {}, nil, nil
    end
  end
  for key, list in pairs(plan.zip) do
    for i, variant in ipairs(optimization.variants) do list[i] = variant[key] end
  end
  return plan
end

local function label(variant)
  return table.concat(lists.map(lists.keys(variant), function(key) return ("%s=%s"):format(key, tostring(variant[key])) end), " ")
end

local function matches(point, variant)
  for key, value in pairs(variant) do
    if tostring(point.options[key]) ~= tostring(value) then return false end
  end
  return true
end

--- Every variant at every length against the first.
-- @tparam table optimization of M.list
function M.table(runs, optimization)
  local rows = {}
  local lengths = lists.unique(lists.map(runs.points, function(point) return point.options.seq_length end))
  table.sort(lengths)
  for _, length in ipairs(lengths) do
    local first, first_point
    for _, variant in ipairs(optimization.variants) do
      for _, point in ipairs(runs.points) do
        if point.options.seq_length == length and matches(point, variant) then
          local metrics = point.status == "ok" and point.metrics or {}
          first, first_point = first or metrics, first_point or point
          local function times(key)
            if metrics == first or not metrics[key] or not first[key] or first[key] == 0 then return nil end
            local interval = statistics.of_ratio(point, first_point, key)
            local is_noise = interval and statistics.contains(interval, 1)
            return ("%.3gx%s"):format(metrics[key] / first[key], is_noise and " within noise" or "")
          end
          rows[#rows + 1] = { length, label(variant), point.status, metrics.median_time_ms, times("median_time_ms"), metrics.peak_memory_mb,
            times("peak_memory_mb"), metrics.comm_exposed_ms, metrics.engine_kept_bytes and metrics.engine_kept_bytes / 2 ^ 20 }
        end
      end
    end
  end
  return text_table.new { title = ("Before and after %s: %s"):format(optimization.name, optimization.about), rows = rows,
    columns = { "seq_length", "variant", "status", "median ms", "x", "peak MiB", "x", "exposed ms", "kept MiB" } }
end

--- Engines of the results that clip, to be verified.
local function engines_of(runs)
  local engines = lists.unique(lists.map(runs.points, function(point) return point.options.mode end))
  return lists.select(engines, function(engine) return engine ~= "none" end)
end

--- Where the engines are verified: on one rank where the results come from, and on two ranks over NCCL where there are two GPUs,
-- else over Gloo on the CPU.
-- @tparam Runs runs
-- @tparam number gpus of this machine
-- @treturn {table,...} ranks, device, transport
function M.places(runs, gpus)
  local on_gpu = gpus > 0 and tostring((runs.points[1] or { options = {} }).options.device):match("^cuda") ~= nil
  return { { ranks = 1, device = on_gpu and "cuda" or "cpu" },
    on_gpu and gpus >= 2 and { ranks = 2, device = "cuda", transport = "NCCL" } or { ranks = 2, device = "cpu", transport = "Gloo" } }
end

--- What verify found of the document's three questions, in its own words.
local function diagnoses_in(said)
  return lists.select(lists.matches(said, "[^\n]+"), function(line)
    return line:match("^norms [%a ]+: ") or line:match("^layers with a bias")
  end)
end

--- Runs `moonshard verify` on the engines of results, alone and on two ranks, on GPUs where there are: norms, factors, clipped sums
-- and weights against batch-of-one gradients by plain autograd, at most 1e-5 off in float32. Logs lie in the run folder.
-- @treturn boolean whether everything holds
-- @treturn string what verify said
-- @treturn {string,...} its diagnoses of ranks that disagree, with the engine before each
function M.verify(runs)
  local program, lines, good, diagnoses = native.launch.program("moonshard"), {}, true, {}
  local places = M.places(runs, #(package.loaded["moonshard"].machine().gpus or {}))
  for _, engine in ipairs(engines_of(runs)) do
    for _, place in ipairs(places) do
      local words = { program, "verify", "--model", "llama3-tiny", "--engine", engine, "--dtype", "float32", "--device", place.device }
      if place.ranks > 1 then lists.extend(words, { "--nproc", tostring(place.ranks), "--use-fsdp" }) end
      local said, holds, ended = shell.run(words, ("%s/verify_%s_%d.txt"):format(runs.path, engine, place.ranks))
      good = good and holds
      local error_found = said:match(engine .. "%s+float32%s+%d+%s+%d+%s+(%S+)")
      lines[#lines + 1] = ("%s on %d %s%s%s: %s; %s"):format(engine, place.ranks, place.device == "cuda" and "GPU" or "rank",
        place.ranks > 1 and "s" or "", place.transport and " over " .. place.transport or "", holds and "holds" or "FAILS",
        error_found and ("largest error %s, allowed 1e-05"):format(error_found) or shell.last_words(said, ended))
      for _, line in ipairs(diagnoses_in(said)) do diagnoses[#diagnoses + 1] = ("%s: %s"):format(engine, line) end
    end
  end
  return good, table.concat(lines, "\n"), diagnoses
end

return M
