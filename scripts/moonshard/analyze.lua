--- ms.analyze and ms.compare: scripts/moonshard/analyze as functions on results.
local compare = require "moonshard.analyze.compare"
local lists = require "moonshard.lists"
local memory = require "moonshard.analyze.memory"
local native = require "moonshard.native"
local points = require "moonshard.analyze.points"
local points_of = require "moonshard.sweep.points"
local scaling = require "moonshard.analyze.scaling"

local M = {
  overhead = require("moonshard.analyze.overhead").analyze,
  memory = memory.analyze,
  stages = memory.stages,
  phases = points.phases,
  scaling = scaling.analyze,
  fit = scaling.fit,
  bottleneck = require("moonshard.analyze.bottleneck").analyze,
  tradeoff = points.tradeoff,
}

--- One source of a comparison: a run folder with its points, or a file with one result.
-- @tparam string path
-- @tparam[opt] table only option = glob
local function source_of(path, only)
  local name = path:gsub("/+$", ""):match("([^/]+)$") or path
  if path:match("%.json$") then return { name = name, items = { compare.read(path) } } end
  local runs = require("moonshard.runs").load(path)
  local tags = #(runs.tags or {}) > 0 and table.concat(runs.tags, ", ") or nil
  local items = lists.map(points_of.matching(runs.points, only or {}), function(point)
    return { name = memory.label_of(runs, point), path = path, status = point.status, options = point.options, metrics = point.metrics,
      result = point.result }
  end)
  return { name = name, environment = runs.environment, tags = tags, note = runs.note, items = items }
end

--- Results of folders and files side by side; only what differs.
-- @tparam {string,...} paths run folders and result files
-- @tparam[opt] table options all, metrics, only
-- @treturn Comparison
-- @usage print(ms.compare({ "results/run_a", "results/run_b" }, { metrics = { "median_time_ms" } }))
function M.compare(paths, options)
  if type(paths) == "string" then paths = { paths } end
  if type(paths) ~= "table" or #paths == 0 then
    error(("ms.compare: argument 1: expected a list of run folders or result files, got %s"):format(tostring(paths)), 2)
  end
  local sources, seen = {}, {}
  for i, path in ipairs(paths) do
    if not native.launch.exists(path) then
      error(("ms.compare: expected a run folder or a result file, got '%s', which is not there"):format(tostring(path):sub(1, 200)), 2)
    end
    sources[i] = source_of(path, options and options.only)
    -- Two folders of one name are told apart by their paths.
    if seen[sources[i].name] then sources[i].name = path end
    seen[sources[i].name] = true
    if #sources[i].items == 1 and #paths > 1 and not path:match("%.json$") then sources[i].items[1].name = sources[i].name end
  end
  local result = compare.analyze(sources, options)
  return result
end

--- Documentation for help() at the prompt.
function M.document(document)
  document(M.overhead, "ms.analyze.overhead", "ms.analyze.overhead(runs, { baseline, axis }) -> Table",
    "Memory in GiB and time in % beyond the baseline with the same other options.")
  document(M.memory, "ms.analyze.memory", "ms.analyze.memory(runs) -> Table", "Memory by owner at the moment of the peak.")
  document(M.stages, "ms.analyze.stages", "ms.analyze.stages(runs) -> Table", "Memory at the stages of each run.")
  document(M.phases, "ms.analyze.phases", "ms.analyze.phases(runs) -> Table", "Median time of each phase of a step.")
  document(M.scaling, "ms.analyze.scaling", "ms.analyze.scaling(runs, { axis }) -> Table",
    "How time, memory and communication grow with an axis: exponent, its error, O(T) or O(T^2).")
  document(M.fit, "ms.analyze.fit", "ms.analyze.fit(x, y) -> table", "The fit that ms.analyze.scaling uses, of two lists.")
  document(M.bottleneck, "ms.analyze.bottleneck", "ms.analyze.bottleneck(runs) -> report",
    "What bounds each point: cause, evidence, advice.")
  document(M.tradeoff, "ms.analyze.tradeoff", "ms.analyze.tradeoff(runs) -> Table",
    "Time and memory of each point, and which points no other one beats in both.")
  document(M.compare, "ms.compare", "ms.compare({ folder or file, … }, { all, metrics, only }) -> Comparison",
    "Results side by side: the options that differ, then figures with ratios.")
end

return M
