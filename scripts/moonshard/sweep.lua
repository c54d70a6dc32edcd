--- Sweeps: a grid of experiments, each point in a process of its own, every result on disk at once.
local guard = require "moonshard.options_guard"
local native = require "moonshard.native"
local progress = require "moonshard.progress"
local runs = require "moonshard.runs"

local M = {}
local Sweep = {}
Sweep.__index = Sweep

-- What the command line asks of the next sweep (moonshard sweep --set …): set by moonshard.cli.
M.overrides = { set = {}, only = {}, resume = nil, dry_run = false }

local own_keys = { name = true, grid = true, out = true }

local function module_table() return package.loaded["moonshard"] end

local function copy_of(source)
  local copy = {}
  for key, value in pairs(source) do copy[key] = value end
  return copy
end

--- Axes in the order of the option schema, so that a grid written as a Lua table has one order.
local function ordered_axes(grid, level)
  local rank, known = {}, module_table().option_names()
  for i, name in ipairs(known) do rank[name] = i end
  local axes = {}
  for key, values in pairs(grid) do
    if type(values) ~= "table" or #values == 0 then
      error(("ms.sweep: grid '%s': expected a list of values, got %s"):format(tostring(key),
        type(values) == "table" and "an empty table" or tostring(values)), level + 1)
    end
    local count = 0
    for _ in pairs(values) do count = count + 1 end
    for i = 1, count do
      if values[i] == nil then
        error(("ms.sweep: grid '%s': expected a list of values, got a hole or a name in it"):format(tostring(key)), level + 1)
      end
    end
    axes[#axes + 1] = key
  end
  table.sort(axes, function(a, b) return (rank[a] or 0) < (rank[b] or 0) or (rank[a] == rank[b] and a < b) end)
  return axes
end

--- The table with the schema's own names: "sigma" and "seq-length" are other spellings of two options, and
-- results are looked up by the effective name.
local function with_own_names(options, level)
  local own = {}
  for _, option in ipairs(module_table().options()) do
    own[option.name] = option.name
    for _, alias in ipairs(option.aliases) do own[alias] = option.name end
  end
  local renamed = {}
  for key, value in pairs(options) do
    local name = type(key) == "string" and own[(key:gsub("-", "_"))] or key
    if renamed[name] ~= nil then
      error(("ms.sweep: option '%s': expected it once, got it in two spellings"):format(tostring(name)), level + 1)
    end
    renamed[name] = value
  end
  return renamed
end

local function cartesian(axes, grid)
  local points = { {} }
  for _, axis in ipairs(axes) do
    local longer = {}
    for _, point in ipairs(points) do
      for _, value in ipairs(grid[axis]) do
        local next_point = copy_of(point)
        next_point[axis] = value
        longer[#longer + 1] = next_point
      end
    end
    points = longer
  end
  return points
end

local function matches(point, only)
  for key, pattern in pairs(only) do
    local glob = "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$"
    if not tostring(point.options[key]):match(glob) and not tostring(point.asked[key]):match(glob) then return false end
  end
  return true
end

--- Short text of a point: "mode=none seq_length=64".
local function label_of(axes, point)
  local parts = {}
  for _, axis in ipairs(axes) do parts[#parts + 1] = ("%s=%s"):format(axis, tostring(point.asked[axis])) end
  return #parts > 0 and table.concat(parts, " ") or point.options.model
end

--- File names of the profiling suites where they name a point, else with the point's id.
local function name_files(points)
  local seen = {}
  for _, point in ipairs(points) do
    local name = ("%s_seq%s"):format(tostring(point.asked.mode or point.options.mode), tostring(point.options.seq_length))
    point.file = name
    seen[name] = (seen[name] or 0) + 1
  end
  for _, point in ipairs(points) do
    local suffix = seen[point.file] > 1 and "_" .. point.id:sub(1, 8) or ""
    point.file = point.file .. suffix .. "_result.json"
  end
end

--- Effective options and id; a mistake is raised at the line that called ms.sweep.
local function resolve(options, level)
  local ok, resolved = pcall(module_table().resolve, options)
  if ok then return resolved end
  error((tostring(resolved):gsub("^.-experiment:", "ms.sweep:")), level + 1)
end

--- Types of the sweep's own keys; the experiment's are the schema's business.
local function check_own_keys(spec, level)
  for key, wanted in pairs { name = "string", out = "string", grid = "table" } do
    if spec[key] ~= nil and type(spec[key]) ~= wanted then
      error(("ms.sweep: option '%s': expected a %s, got %s"):format(key, wanted == "table" and "table { option = { values } }" or "text",
        tostring(spec[key])), level + 1)
    end
  end
  if spec.name and spec.name:find("[/%c]") then
    error(("ms.sweep: option 'name': expected a text without '/', got '%s'; the folder is named after it"):format(spec.name), level + 1)
  end
  for key in pairs(spec.grid or {}) do
    if type(key) ~= "string" then
      error(("ms.sweep: grid: expected names of options as keys, got %s; write grid = { mode = { ... } }"):format(tostring(key)), level + 1)
    end
  end
end

--- A sweep: checks every point now, before any work starts.
-- @tparam table spec name, grid, out and experiment options that all points share
-- @treturn Sweep
-- @usage ms.sweep { model = "llama3-tiny", grid = { mode = { "none", "materialize" } } }:run()
function M.new(spec)
  if type(spec) ~= "table" then error("ms.sweep: expected a table, got " .. type(spec), 2) end
  check_own_keys(spec, 2)
  local shared = {}
  for key, value in pairs(spec) do
    if not own_keys[key] then shared[key] = value end
  end
  local set, only = with_own_names(M.overrides.set, 2), with_own_names(M.overrides.only, 2)
  shared = with_own_names(shared, 2)
  for key, value in pairs(set) do shared[key] = value end
  local grid = with_own_names(spec.grid or {}, 2)
  for key in pairs(set) do grid[key] = nil end

  resolve(shared, 2)  -- a misspelt key is named before the grid multiplies it

  local self = setmetatable({ name = spec.name or "", out = spec.out or "results" }, Sweep)
  self.axes = ordered_axes(grid, 2)
  self.request = { shared = shared, grid = grid }
  self.points = {}
  local ids = {}
  for _, values in ipairs(cartesian(self.axes, grid)) do
    local options = copy_of(shared)
    for key, value in pairs(values) do options[key] = value end
    local resolved = resolve(options, 2)
    local point = { id = resolved.id, options = resolved.options, asked = values }
    if ids[point.id] then
      error(("ms.sweep: expected different points, got two of the same effective options (%s)"):format(label_of(self.axes, point)), 2)
    end
    ids[point.id] = true
    if matches(point, only) then self.points[#self.points + 1] = point end
  end
  if #self.points == 0 then error("ms.sweep: expected at least one point, got none; check --only", 2) end
  name_files(self.points)
  return self
end

--- The folder to write to: a new one, or the one to go on with, whose points must be ours.
local function open_folder(self, resume)
  local records = native.records
  if not resume then
    local folder = records.create(self.out, self.name)
    local points = {}
    for i, point in ipairs(self.points) do
      points[i] = { id = point.id, file = point.file, asked = point.asked, options = point.options }
    end
    records.write_environment(folder, module_table().machine())
    records.write_sweep(folder, { name = self.name, request = self.request, axes = self.axes, points = points })
    return folder, {}
  end
  local folder, status, known = records.open(resume), {}, {}
  for _, point in ipairs(records.load(resume).points) do
    status[point.id], known[point.id] = point.status, true
  end
  for _, point in ipairs(self.points) do
    if not known[point.id] then
      error(("sweep:run: expected the grid of %s, got a point it does not have (%s); start a new run instead"):format(
        resume, label_of(self.axes, point)), 3)
    end
  end
  return folder, status
end

--- What became of a point whose process has ended: the record says, or the process died without one.
local function settle(folder, point, ended)
  local records = native.records
  local path = records.path(folder)
  local record
  for _, loaded in ipairs(records.load(path).points) do
    if loaded.id == point.id then record = loaded end
  end
  if record.result.status == nil then
    local tail = records.log_tail(path, point.id, 2000)
    local last = tail:match("([^\n]+)\n*$") or "no output"
    local failed = { schema_version = 1, status = "failed", options = point.options,
      error = ("the process ended with %s; last words: %s"):format(ended.text, last) }
    records.write_result(folder, point.id, failed)
    record.status, record.error, record.result = "failed", failed.error, failed
  end
  records.write_status(folder, point.id, record.status)
  records.write_index(folder)
  return record
end

local function run_point(folder, point, on_tick)
  local records, launch = native.records, native.launch
  records.write_status(folder, point.id, "running")
  local log = records.point_folder(folder, point.id) .. "/log.rank0.txt"
  local ended = launch.run({ launch.program("moonshard"), "point", records.path(folder), point.id }, log, on_tick)
  return settle(folder, point, ended)
end

local function write_summary(folder, results)
  local text, markdown = results:summary()
  native.records.write_file(folder, "summary.txt", text)
  native.records.write_file(folder, "summary.md", markdown)
end

--- Runs the points that have no good result yet.
-- @tparam[opt] table options resume = folder to go on with; dry_run = true only lists the points
-- @treturn Runs the results; failed points are among them with their status
function Sweep:run(options)
  options = guard.check("sweep:run", options, { "resume", "dry_run" }, 2)
  local world = module_table().dist.world()
  if world > 1 then
    error(("sweep:run: expected one process, got %d ranks, each of which would run the whole sweep; "
      .. "put nproc into the sweep's options instead"):format(world), 2)
  end
  local resume = options.resume or M.overrides.resume
  if options.dry_run or M.overrides.dry_run then
    for i, point in ipairs(self.points) do print(("%d. %s  %s"):format(i, label_of(self.axes, point), point.id)) end
    return nil
  end
  local folder, status = open_folder(self, resume)
  local path = native.records.path(folder)
  local bar = progress.new(#self.points, native.launch.is_terminal())
  bar:say(("sweep%s: %d points into %s"):format(self.name ~= "" and " " .. self.name or "", #self.points, path))
  for _, point in ipairs(self.points) do
    local label = label_of(self.axes, point)
    if status[point.id] == "ok" then
      bar:skip(label .. ": already done")
    else
      bar:start(label)
      local ok, record = pcall(run_point, folder, point, function() bar:tick() end)
      if not ok then
        bar:close()
        if native.launch.interrupted() then
          native.records.write_status(folder, point.id, "interrupted")
          native.records.write_index(folder)
          bar:say(("sweep stopped: %d of %d points are done in %s; go on with sweep:run { resume = \"%s\" }"):format(
            bar.done, #self.points, path, path))
        end
        error(record, 0)
      end
      bar:finish(record)
    end
  end
  bar:close()
  local results = runs.load(path)
  write_summary(folder, results)
  if results:count("ok") < #results.points then M.some_failed = true end
  return results
end

function Sweep:__tostring()
  return ("Sweep %s: %d points over %s"):format(self.name, #self.points, table.concat(self.axes, " x "))
end

return M
