--- ms.trace: what a Chrome trace says of a step. Its critical path, what the step would take if some of it were faster or not there,
-- and how two traces differ. Traces are files, or folders with one: of a point, or of a run with one traced point.
local blame = require "moonshard.sweep.blame"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local report = require "moonshard.trace_report"
local usage = require "moonshard.usage"

local M = {}

local Path, WhatIf, Diff = { __tostring = report.path }, { __tostring = report.what_if }, { __tostring = report.diff }
Path.__index, WhatIf.__index, Diff.__index = Path, WhatIf, Diff

--- The trace that a path means.
local function find(where, path, rank)
  if type(path) ~= "string" then blame("%s: expected the path of a trace, got %s", where, type(path)) end
  rank = rank or 0
  if type(rank) ~= "number" or rank < 0 or rank ~= math.floor(rank) then
    blame("%s: option 'rank': expected a whole number from 0, got %s", where, tostring(rank))
  end
  path = #path > 1 and path:gsub("/+$", "") or path
  if not native.launch.exists(path) then blame("%s: expected a trace or a folder with one, got '%s', which is not there", where, path) end
  local found = native.tracing.find(path, rank)
  if #found == 1 then return found[1] end
  if #found == 0 then
    blame("%s: expected a folder with a trace of rank %d, got '%s', which has none; measure with profile = \"trace\"", where, rank, path)
  end
  blame("%s: expected a folder with one trace of rank %d, got '%s' with %d; name one of them: %s%s", where, rank, path, #found,
    table.concat({ unpack(found, 1, 4) }, ", "), #found > 4 and ", …" or "")
end

--- What a native function gives; its error names the user's line.
local function answer(where, call, ...)
  local ok, result = pcall(call, ...)
  if ok then return result end
  blame("%s: %s", where, (usage.plain(result):gsub("^what_if: ", ""):gsub("^trace: ", "")))
end

--- What the point of a trace measured; nil where no result lies beside it, or a plan's.
local function measured_beside(file)
  local result = (file:match "^(.*)/[^/]*$" or ".") .. "/result.json"
  if not native.launch.exists(result) then return nil end
  local ok, record = pcall(native.records.read_json, result)
  if not ok or record.modelled then return nil end
  return record.metrics and record.metrics.median_time_ms
end

--- Bandwidth of an update by device, from the profiles that ship.
local function update_speeds()
  local speeds, machines = {}, require "moonshard.plan_machines"
  for _, name in ipairs(machines.shipped) do
    local profile = machines.read_shipped(name)
    speeds[profile.device] = profile.update_gb_per_s
  end
  return speeds
end

local function check_number(where, options, name, least)
  local value = options[name]
  if value == nil then return end
  if type(value) ~= "number" or value < least or value ~= value or value == math.huge then
    blame("%s: option '%s': expected a number from %s, got %s", where, name, least, tostring(value))
  end
end

--- The critical path of a step: the chain of work of which every part had to wait for the one before.
-- @tparam string path
-- @tparam[opt] table options step (the last), rank (0), segments
function M.path(path, options)
  options = guard.check("ms.trace.path", options, { "step", "rank", "segments" }, 2)
  check_number("ms.trace.path", options, "step", 1)
  local file = find("ms.trace.path", path, options.rank)
  local result = answer("ms.trace.path", native.tracing.path, file, { step = options.step, segments = options.segments })
  result.measured_ms = not result.modelled and measured_beside(file) or nil
  return setmetatable(result, Path)
end

local scales = { phases = "phase", layers = "layer", kinds = "kind", names = "name" }

--- Options as rules of the native side.
local function rules_of(where, options)
  local rules = {}
  local function add(subject, glob, factor)
    if type(glob) ~= "string" then blame("%s: expected names of a %s, got %s", where, subject, type(glob)) end
    if type(factor) ~= "number" or not (factor >= 0 and factor < math.huge) then
      blame("%s: %s '%s': expected a factor from 0, got %s", where, subject, glob, tostring(factor))
    end
    rules[#rules + 1] = { subject = subject, glob = glob, factor = factor }
  end
  local removed = options.remove
  for _, glob in ipairs(type(removed) == "string" and { removed } or removed or {}) do add("name", glob, 0) end
  for key, subject in pairs(scales) do
    local values = options[key] or {}
    if type(values) ~= "table" then blame("%s: option '%s': expected a table name = factor, got %s", where, key, type(values)) end
    for _, glob in ipairs(lists.keys(values)) do add(subject, glob, values[glob]) end
  end
  if options.link then
    check_number(where, options, "link", 1e-6)
    add("kind", "communication", 1 / options.link)
  end
  return rules
end

--- What a step would take if some of it were faster, or not there.
-- @tparam string path
-- @tparam table options norms, noise, plain, link, remove, names, phases, layers, kinds, step, rank
function M.what_if(path, options)
  local where = "ms.trace.what_if"
  options = guard.check(where, options,
    { "norms", "noise", "plain", "link", "remove", "names", "phases", "layers", "kinds", "step", "rank" }, 2)
  check_number(where, options, "step", 1)
  local rules = rules_of(where, options)
  local norms, noise = options.norms or options.plain or false, options.noise or options.plain or false
  if #rules == 0 and not norms and not noise then
    blame("%s: expected something to change, got nothing; give norms = true, plain = true, link = 2, remove = \"KERNEL*\", phases = "
      .. "{ backward = 0.5 } or the like", where)
  end
  local file = find(where, path, options.rank)
  -- A trace slows the host down: what was measured without one says how long a step really takes.
  local result = answer(where, native.tracing.what_if, file, { step = options.step, norms = norms, noise = noise, rules = rules,
    update_gb_per_s = update_speeds(), measured_ms = measured_beside(file) })
  return setmetatable(result, WhatIf)
end

--- How two traces differ, by phase, layer and kernel; figures are of one step.
function M.diff(before, after, options)
  options = guard.check("ms.trace.diff", options, { "rank" }, 2)
  local where = "ms.trace.diff"
  return setmetatable(answer(where, native.tracing.diff, find(where, before, options.rank), find(where, after, options.rank)), Diff)
end

return M
