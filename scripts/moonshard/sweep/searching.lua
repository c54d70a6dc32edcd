--- Points of a sweep that looks for the best one: drawn when they are to run, from what is known by then.
local blame = require "moonshard.sweep.blame"
local folders = require "moonshard.sweep.folder"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local points_of = require "moonshard.sweep.points"
local watches = require "moonshard.search.watch"

local M = {}
local Trial = {}
Trial.__index = Trial

local log_period_s = 0.1

--- An attempt begins: its lines come behind those of an earlier one.
function Trial:begin(log)
  self.point.steps = nil
  self.watch = watches.new(log)
  self.watch:poll()
end

--- Why the trial is to stop, from the steps that it has logged since the last look; nil to go on.
function Trial:look()
  local now = native.launch.clock()
  if not self.search.step_metric or now - (self.looked or 0) < log_period_s then return nil end
  self.looked = now
  for _, step in ipairs(self.watch:poll()) do
    local why = self.search:step(self.point, step.step, step.values)
    if why then return why end
  end
end

function Trial:steps() return self.point.steps or {} end

function Trial:done(record) self.search:done(self.point, record) end

local function trial_of(search, point) return setmetatable({ search = search, point = point }, Trial) end

--- A point as the sweep's others are, with all of its options: what they share is not known before the end.
local function make_point(sweep, values)
  local grid = {}
  for name, value in pairs(values) do grid[name] = { value } end
  local made = points_of.make(grid, {}, sweep.request.shared, nil, sweep.own_run ~= nil)[1]
  return { id = made.id, options = made.options, asked = made.asked, label = made.label, gpu = made.gpu,
    file = ("point_%s_result.json"):format(made.id) }
end

--- Checks what can be checked before the first point: every option, with values of the space.
function M.check(sweep)
  if next(sweep.request.grid) ~= nil or next(sweep.request.zip) ~= nil then
    blame("ms.sweep: option 'search': expected it instead of grid and zip, got both; give fixed options by their names, "
      .. "and what is searched in search.space")
  end
  local trial = require("moonshard.search.study").new(sweep.search_space, { trials = 1 }):ask()
  make_point(sweep, trial.values)
end

--- What an earlier process has tried: trials that stand are told, the others are to run again.
local function replay(job, waiting)
  local search, todo, is_waiting = job.sweep.search, {}, {}
  for _, point in ipairs(waiting) do is_waiting[point] = true end
  for _, point in ipairs(job.points) do
    local record = not is_waiting[point] and native.records.load_point(job.folder.path, point.id) or nil
    local trial = trial_of(search, search:replay(point.asked, record))
    if is_waiting[point] then todo[#todo + 1] = { point, trial } end
  end
  return todo
end

--- A function that gives the next point and its trial; nil when there is none left.
function M.source(job, waiting)
  local sweep = job.sweep
  local todo, tried = replay(job, waiting), lists.set(lists.column(job.points, "id"))
  return function()
    if #todo > 0 then return unpack(table.remove(todo, 1)) end
    while true do
      local asked = sweep.search:next()
      if not asked then return nil end
      local point, trial = make_point(sweep, asked.values), trial_of(sweep.search, asked)
      -- Two of the space may mean the same experiment (an option that an engine does not use).
      if tried[point.id] then
        trial:done(native.records.load_point(job.folder.path, point.id))
        job.bar.total = job.bar.total - 1
      else
        tried[point.id] = true
        table.insert(job.points, point)
        if job.points ~= sweep.points then table.insert(sweep.points, point) end
        folders.write_plan(job.folder.writer, sweep)
        return point, trial
      end
    end
  end
end

--- The points of a folder that a search goes on with, in the order they were drawn.
function M.earlier_points(path)
  local _, run_table = folders.known_points(path)
  if not run_table or type(run_table) == "string" then blame("%s", tostring(run_table)) end
  local points = {}
  for i = 1, native.records.head(run_table).count do
    local planned = native.records.planned(run_table, i)
    local axes = lists.keys(planned.asked)
    points[i] = { id = planned.id, options = planned.options, asked = planned.asked, file = planned.file,
      label = points_of.label(axes, planned) }
  end
  return points
end

--- Whether a folder is one of this search: the same request.
function M.fits(sweep, path)
  local known, run_table = folders.known_points(path)
  if not known then return false end
  local there = native.records.head(run_table).request.search
  return there ~= nil and native.records.to_json_line(there) == native.records.to_json_line(sweep.request.search)
end

return M
