--- Sweeps: experiments over a grid, each point in its own process, every result on disk at once.
local again = require "moonshard.report.again"
local blame = require "moonshard.sweep.blame"
local expectations = require "moonshard.sweep.expect"
local folders = require "moonshard.sweep.folder"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local points_of = require "moonshard.sweep.points"
local progress = require "moonshard.progress"
local reports = require "moonshard.report"
local runs = require "moonshard.runs"
local scripts = require "moonshard.sweep.script"
local searches = require "moonshard.search.request"
local searching = require "moonshard.sweep.searching"

local M = {}
local Sweep = {}
Sweep.__index = Sweep
M.class = Sweep

local own_keys = { name = "string", out = "string", grid = "table", zip = "table", when = "function", each = "function", expect = "table",
  seed_result = "function", growing = "table", baseline = "baseline", run = "function", tags = "table", note = "string",
  search = "table" }
local key_words = { string = "text", table = "table { option = { values } }", ["function"] = "function" }

--- Options of sweep:run with their types.
local run_keys = { resume = "string", dry_run = "boolean", retry = "number", timeout = "number", fail_fast = "boolean", all = "boolean",
  only = "table", budget = "number", shuffle = "shuffle", launcher = "string", slurm_args = "string", lock = "boolean",
  retry_oom = "boolean", drain_timeout = "number", parallel = "number" }
M.run_options, M.own_options = lists.keys(run_keys), lists.keys(own_keys)

--- Types of the sweep's own keys; the experiment's are the schema's business.
local function check_own_keys(spec)
  for key, wanted in pairs(own_keys) do
    local value = spec[key]
    if wanted == "baseline" then
      if value ~= nil and type(value) ~= "string" and type(value) ~= "table" then
        blame("ms.sweep: option 'baseline': expected a mode or { option = value }, got %s", tostring(value))
      end
    elseif value ~= nil and type(value) ~= wanted then
      local words = (key == "expect" or key == "growing" or key == "tags") and "list" or key_words[wanted]
      blame("ms.sweep: option '%s': expected a %s, got %s", key, words, tostring(value))
    end
  end
  if spec.name and spec.name:find("[/%c]") then
    blame("ms.sweep: option 'name': expected a text without '/', got '%s'; the folder is named after it", spec.name)
  end
  for _, list in ipairs { "grid", "zip" } do
    for key in pairs(spec[list] or {}) do
      if type(key) ~= "string" then
        blame("ms.sweep: %s: expected names of options as keys, got %s; write %s = { mode = { ... } }", list, tostring(key), list)
      end
    end
  end
  for key, tag in pairs(spec.tags or {}) do
    if type(key) ~= "number" or type(tag) ~= "string" then
      blame("ms.sweep: option 'tags': expected a list of texts, got %s", type(key) ~= "number" and tostring(key) or tostring(tag))
    end
  end
  expectations.check(spec.expect or {})
  points_of.check_keys("ms.sweep", spec, M.own_options)
end

--- The baseline as { axis, value }, in the schema's own words.
local function read_baseline(baseline)
  if baseline == nil then return nil end
  if type(baseline) == "string" then return { axis = "mode", value = baseline } end
  local axis, value = next(points_of.with_own_names(baseline))
  if axis == nil or next(baseline, next(baseline)) ~= nil then
    blame("ms.sweep: option 'baseline': expected one { option = value }, got %s", axis == nil and "an empty table" or "several")
  end
  return { axis = axis, value = value }
end

--- The growing axes in the schema's own words.
local function read_growing(list)
  local names = {}
  for i, name in ipairs(list or outcome.growing) do
    local own = next(points_of.with_own_names { [tostring(name)] = true })
    if not lists.contains(package.loaded["moonshard"].option_names(), own) then
      blame("ms.sweep: growing: unknown option '%s'", tostring(name))
    end
    names[i] = own
  end
  return names
end

--- A search: its points are drawn while it runs. What the command line sets is not searched.
local function read_search(self, given, set)
  local space = points_of.with_own_names(type(given.space) == "table" and given.space or {})
  for key in pairs(set) do space[key] = nil end
  self.search_space = space
  local read, search = pcall(searches.read, lists.merged(given, { space = type(given.space) == "table" and space or given.space }), 1)
  if not read then blame("%s", (tostring(search):gsub("^.-ms%.sweep: ", "ms.sweep: "))) end
  self.search = search
  self.axes, self.points = self.search:axes(), {}
  searching.check(self)
end

local function new(spec, request)
  if type(spec) ~= "table" then blame("ms.sweep: expected a table, got %s", type(spec)) end
  -- In the process of one point the grid is in sweep.json.
  if scripts.own_task() then return setmetatable({ own_run = spec.run, by_command = request }, Sweep) end
  check_own_keys(spec)
  local shared = {}
  for key, value in pairs(spec) do
    if not own_keys[key] then shared[key] = value end
  end
  local set = points_of.with_own_names(request.set)
  shared = points_of.with_own_names(shared)
  local grid, zip = points_of.with_own_names(spec.grid or {}), points_of.with_own_names(spec.zip or {})
  for key, value in pairs(set) do shared[key], grid[key], zip[key] = value, nil, nil end

  local self = setmetatable({ name = spec.name or "", out = request.out or spec.out or "results", each = spec.each,
    expect = spec.expect or {}, seed_result = spec.seed_result, by_command = request }, Sweep)
  self.own_run = spec.run
  if spec.run and not request.words then
    blame("ms.sweep: option 'run': expected a script that moonshard run or moonshard sweep has started, got the prompt or another program; "
      .. "each point runs the script again in a process of its own")
  end
  self.baseline, self.growing = read_baseline(spec.baseline), read_growing(spec.growing)
  self.request = { shared = shared, grid = grid, zip = zip, growing = self.growing, baseline = self.baseline,
    tags = spec.tags, note = spec.note, search = spec.search,
    command = request.again and again.without_secrets(request.again) }
  if spec.search then
    read_search(self, spec.search, set)
    return self
  end
  local all
  all, self.axes, self.common = points_of.make(grid, zip, shared, spec.when, spec.run ~= nil)
  self.points = points_of.matching(all, points_of.with_own_names(request.only))
  if #self.points == 0 then
    blame("ms.sweep: expected at least one point, got none; check %s", #all == 0 and "when" or "--only")
  end
  return self
end

--- A function that makes sweeps under a request of the command line (moonshard sweep --set …).
-- @tparam table request set and only: tables by option; resume: list of folders; out; run: options of sweep:run; again: the
-- line to go on with. It belongs to this function and its sweeps: resumed folders are noted in it.
-- @treturn function as M.new
function M.maker(request) return function(spec) return new(spec, request) end end

--- A sweep: checks every point now, before any work starts.
-- @tparam table spec name, out, grid, zip, when, each, run, baseline, expect, seed_result, growing, tags, note, search, and
-- experiment options that all points share
-- @treturn Sweep
-- @usage ms.sweep { model = "llama3-tiny", grid = { mode = { "none", "materialize" } } }:run()
function M.new(spec)
  local sweep = new(spec, scripts.request()) -- no tail call: errors name the caller's line
  return sweep
end

local function read_run_options(self, given)
  local options = guard.check("sweep:run", given, M.run_options, 3)
  for key, value in pairs(self.by_command.run) do options[key] = value end
  for key, value in pairs(options) do
    local wanted, kind = run_keys[key], type(value)
    if wanted == "shuffle" then
      local whole = kind == "number" and value == math.floor(value) and math.abs(value) < 2 ^ 53
      if value ~= true and value ~= false and not whole then
        blame("sweep:run: option 'shuffle': expected true or a whole number as the seed, got %s", tostring(value))
      end
    elseif kind ~= wanted then
      blame("sweep:run: option '%s': expected %s, got %s", key, wanted == "boolean" and "true or false" or "a " .. wanted, tostring(value))
    end
  end
  for _, key in ipairs { "retry", "timeout", "drain_timeout", "budget" } do
    if options[key] and (options[key] < 0 or options[key] ~= options[key]) then
      blame("sweep:run: option '%s': expected 0 or more, got %s", key, options[key])
    end
  end
  if options.launcher and options.launcher ~= "local" and options.launcher ~= "slurm" then
    blame("sweep:run: option 'launcher': expected local or slurm, got '%s'", options.launcher)
  end
  options.parallel = options.parallel or 1
  if options.parallel < 1 or options.parallel ~= math.floor(options.parallel) or options.parallel > 1024 then
    blame("sweep:run: option 'parallel': expected a whole number from 1 to 1024, got %s", tostring(options.parallel))
  end
  if options.launcher == "slurm" and (options.parallel > 1 or self.search) then
    blame("sweep:run: option '%s': expected launcher = local, got slurm, which runs the points of a grid side by side by itself",
      self.search and "search" or "parallel")
  end
  options.retry, options.drain_timeout = math.floor(options.retry or 0), options.drain_timeout or 30
  options.timeout = options.timeout or 0
  return options
end

--- The folder to go on with, if any. Scripts of several sweeps may be given several: each takes the one that is its own.
local function folder_to_resume(self, options)
  local request = self.by_command
  local given = request.resume
  if options.resume or not given then return options.resume end
  for _, path in ipairs(given) do
    if (self.search and searching or folders).fits(self, path) then
      request.has_resumed = true
      return path
    end
  end
  -- Some other sweep of this script goes on; this one had not begun.
  if request.has_resumed then return nil end
  return given[1]
end

local function chosen_points(self, options, resume)
  if self.search then
    if options.only or options.shuffle or next(self.by_command.only) ~= nil then
      blame("sweep:run: option '%s': expected a sweep over a grid, got a search, whose points are drawn while it runs",
        options.shuffle and "shuffle" or "only")
    end
    return resume and searching.earlier_points(resume) or {}
  end
  local chosen = points_of.matching(self.points, points_of.with_own_names(options.only or {}))
  if #chosen == 0 then blame("sweep:run: expected at least one point, got none; check only") end
  if not options.shuffle then return chosen end
  return points_of.shuffled(chosen, options.shuffle == true and 0 or options.shuffle)
end

local function print_plan(points, resume, options)
  local known = resume and assert(folders.known_points(resume)) or {}
  for i, point in ipairs(points) do
    local record = known[point.id]
    local state = resume and ("  %s: %s"):format(record and record.status or "not in that folder",
      folders.is_settled(record, options) and "stands" or "to do") or ""
    print(("%d. %s  %s%s"):format(i, point.label, point.id, state))
  end
end

--- Tables, claims and index at the end, also of a sweep that was stopped.
local function conclude(self, job)
  local records, folder = native.records, job.folder
  local indexed, why = pcall(records.write_index, folder.writer)
  if not indexed then outcome.note_unwritten(job, "index.csv", why) end
  collectgarbage() -- what the points have left; the results of a large folder come on top
  local results = runs.load(folder.path)
  results.baseline = self.baseline
  local text, markdown = results:summary()
  if #self.expect > 0 then
    local verdicts = expectations.judge(self.expect, results)
    local as_text, as_markdown = expectations.describe(verdicts)
    expectations.write(folder.writer, verdicts)
    text, markdown = text .. "\n" .. as_text .. "\n", markdown .. "\n" .. as_markdown .. "\n"
    results.claims = verdicts
    job.claims_text = as_text
  end
  for name, content in pairs { ["summary.txt"] = text, ["summary.md"] = markdown } do
    local written, reason = pcall(records.write_file, folder.writer, name, content)
    if not written then outcome.note_unwritten(job, name, reason) end
  end
  local made, reason = pcall(reports.write, results)
  if not made then outcome.note_unwritten(job, "report.html", reason) end
  return results
end

local function report(self, job, results, stopped)
  local count, spent = {}, native.launch.clock() - job.bar.began
  for _, point in ipairs(job.points) do
    local record = job.folder.known[point.id]
    local status = record and record.status or "not run"
    count[status] = (count[status] or 0) + 1
  end
  local parts = {}
  for _, status in ipairs { "ok", "oom", "failed", "timeout", "skipped", "interrupted", "planned", "running", "unreadable", "not run" } do
    if count[status] then parts[#parts + 1] = ("%d %s"):format(count[status], status) end
  end
  job.bar:say(("sweep%s %s after %s: %s; %s"):format(self.name ~= "" and " " .. self.name or "", stopped and "stopped" or "done",
    progress.clock_text(spent), table.concat(parts, ", "), job.folder.path))
  if job.claims_text then job.bar:say("\n" .. job.claims_text) end
  local best = self.search and self.search:describe_best()
  if best then job.bar:say(best) end
  if stopped then
    local command = self.by_command.again
    job.bar:say(("go on with: %s"):format(command and scripts.as_typed(command, job.folder.path)
      or ("sweep:run { resume = \"%s\" }"):format(job.folder.path)))
  end
  local good = (count.ok or 0) + (self.search and count.skipped or 0) -- trials that were stopped have done what they should
  if good < #job.points then native.launch.note_failed_points() end
  return results
end

--- All that happens between the opening of a folder and its closing.
-- @treturn Runs
-- @treturn string|nil why it stopped early
local function run_job(self, job, runner)
  local bar = job.bar
  bar:say(("sweep%s: %d points into %s"):format(self.name ~= "" and " " .. self.name or "", bar.total, job.folder.path))
  if job.resumed then bar:say(folders.describe_resume(job.points, job.folder.known, job.options)) end
  local ok, stopped = pcall(runner.run, job)
  if ok and native.launch.interrupts() > 0 then stopped = "interrupted" end
  bar:stop(ok and not stopped and "finished" or "stopped")
  if not ok then error(stopped, 0) end
  local results = conclude(self, job)
  report(self, job, results, stopped)
  return results, stopped
end

--- Runs the points that have no good result yet.
-- @tparam[opt] table options resume = folder to go on with; dry_run = true only lists the points; retry, timeout (seconds per
-- point), budget (seconds for this call: no point begins that is not expected to end within), fail_fast, all, only, shuffle,
-- launcher = "local" | "slurm", slurm_args, lock, retry_oom, drain_timeout, parallel (points side by side)
-- @treturn Runs the results; failed points are among them with their status
function Sweep:run(options)
  options = read_run_options(self, options)
  local in_point = not options.dry_run and scripts.begin(self)
  if in_point then return in_point end
  local world = package.loaded["moonshard"].dist.world()
  if world > 1 then
    blame("sweep:run: expected one process, got %d ranks, each of which would run the whole sweep; "
      .. "put nproc into the sweep's options instead", world)
  end
  local resume = folder_to_resume(self, options)
  local points = chosen_points(self, options, resume)
  if self.search then
    if resume and not searching.fits(self, resume) then
      blame("sweep:run: expected a run of this search, got %s, whose request is another; start a new run instead", resume)
    end
    self.points = points
  end
  if options.dry_run then
    if self.search then print(self.search:describe()) end
    print_plan(points, resume, options)
    return runs.none { path = resume or self.out, name = self.name, axes = self.axes, baseline = self.baseline }
  end
  if options.launcher == "slurm" and self.own_run and not (self.by_command and self.by_command.words) then
    blame("sweep:run: launcher = slurm: expected a function of a script that 'moonshard run' or 'moonshard sweep' runs, and that a task "
      .. "can run again, got one of the prompt; use launcher = local")
  end
  local runner = require(options.launcher == "slurm" and "moonshard.sweep.slurm" or "moonshard.sweep.runner")
  if runner.check then runner.check() end
  local folder = resume and folders.open(self, resume) or folders.create(self)
  scripts.note_folder(folder.path)
  local bar = progress.new(self.search and self.search:trials() or #points, native.launch.is_terminal(), function(text)
    native.records.write_file(folder.writer, "progress.json", text)
  end)
  local job = { sweep = self, points = points, folder = folder, options = options, bar = bar, out_of_memory = {}, resumed = resume ~= nil }
  -- The collector lets a heap grow to twice its size before it looks; that of many points is large.
  local pause = #points > 10000 and collectgarbage("setpause", 110)
  native.launch.begin_interrupts()
  -- Whatever is raised below, also by a full disk: the folder's lock and the signals are given back.
  local ok, results, stopped = pcall(run_job, self, job, runner)
  folders.close(folder)
  native.launch.end_interrupts()
  if pause then collectgarbage("setpause", pause) end
  if not ok then error(results, 0) end
  -- The previous Ctrl-C handler decides what happens now: the program ends, the prompt comes back.
  if stopped == "interrupted" then
    native.launch.repeat_interrupt()
    error("interrupted", 0)
  end
  return results
end

function Sweep:__tostring()
  return ("Sweep %s: %d points over %s"):format(self.name, self.search and self.search:trials() or #self.points,
    table.concat(self.axes, " x "))
end

return M
