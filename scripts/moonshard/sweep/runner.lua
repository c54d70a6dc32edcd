--- Runs points on this machine: one process (or one group of ranks) after the other, or some side by side.
local device = require "moonshard.sweep.device"
local folders = require "moonshard.sweep.folder"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local scripts = require "moonshard.sweep.script"
local shell = require "moonshard.shell"
local side_by_side = require "moonshard.sweep.side_by_side"

local M = {}

--- Points of one mode are expected to take the same time.
local function kind_of(point) return tostring(point.options.mode) end

--- Printed once, at the first Ctrl-C.
local function note_first_interrupt(job)
  if job.said_interrupt or native.launch.interrupts() ~= 1 then return end
  job.said_interrupt = true
  job.bar:say("Ctrl-C: stopping after this point; press again to end it now")
end

--- Waits for a point's process, and ends it early where its trial of a search says so.
-- @treturn table how it ended
-- @treturn string|nil why its trial was stopped
local function wait_for(job, child, trial)
  local launch, pruned = native.launch, nil
  while true do
    note_first_interrupt(job)
    job.bar:tick()
    if launch.interrupts() > 1 or job.failure then launch.stop(child) end
    pruned = pruned or trial and trial:look()
    if pruned then launch.stop(child) end
    local ended = launch.poll(child)
    if ended then return ended, pruned end
    side_by_side.pause()
  end
end

--- One attempt: the child writes its record, we wait.
local function attempt(job, point, number, trial)
  local records, launch = native.records, native.launch
  local held = job.device:acquire(point)
  if not held then return nil end
  records.remove_result(job.folder.writer, point.id)
  records.write_status(job.folder.writer, point.id, "running")
  local log = records.point_folder(job.folder.writer, point.id) .. "/log.rank0.txt"
  -- The child says what is wrong with a log that cannot be written.
  pcall(native.files.append_private, log, ("=== %s, attempt %d, %s\n"):format(point.label, number, os.date("!%Y-%m-%dT%H:%M:%SZ")))
  local kills = outcome.oom_kills()
  local words, variables = scripts.child(job, point)
  local side_by_side_now = job.options.parallel or 1
  local threads = side_by_side_now > 1 and shell.thread_variables(side_by_side_now) or {}
  if trial then trial:begin(log) end
  local ok, ended, pruned = pcall(function()
    local child = launch.start(words, log, { timeout = job.options.timeout,
      variables = lists.merged(threads, held.variables, variables) })
    return wait_for(job, child, trial)
  end)
  job.device.release(held)
  if not ok then error(ended, 0) end
  if pruned and ended.ended_by == "caller" and launch.interrupts() < 2 and not job.failure then
    outcome.write_failure(job, point, "skipped", pruned, { steps = trial:steps() })
    local record = records.load_point(job.folder.path, point.id)
    outcome.finish(job, point, record)
    return record
  end
  ended.oom_kills_before = kills
  return outcome.settle(job, point, ended, number)
end

--- One point with its retries. Out of memory is a result, not a failure: it is not retried.
-- @tparam[opt] table trial of a search (search/trial.lua)
-- @treturn table the record; nil when the user stopped before it began
function M.run_point(job, point, trial)
  for number = 1, job.options.retry + 1 do
    local record = attempt(job, point, number, trial)
    if not record then return nil end
    if not outcome.has_failed(record) or number > job.options.retry or native.launch.interrupts() > 0 then return record end
    job.bar:say(("%s: %s; retry %d of %d"):format(point.label, outcome.describe(record), number, job.options.retry))
  end
end

local function skip_predicted(job, point, why)
  outcome.write_failure(job, point, "skipped", why)
  local record = native.records.load_point(job.folder.path, point.id)
  outcome.finish(job, point, record)
  job.bar:skip(point.label .. ": skipped: " .. why)
  return record
end

--- The user's function after a point; its mistakes must not end the sweep.
function M.call_each(job, record)
  if not job.sweep.each then return end
  local ok, message = pcall(job.sweep.each, record)
  if not ok then job.bar:say("warning: each: " .. tostring(message)) end
end

--- Beyond so many kept points one line tells of all.
local most_kept_lines = 200

--- Points of an earlier run that are kept. Their records are there; the parent may have been killed between a record and what it
-- makes of it, which is looked for and made where it is missing.
-- @tparam {table,...} points
function M.keep_all(job, points)
  local records, path = native.records, job.folder.path
  local has_file = lists.set(native.files.list(path))
  local is_brief = #points > most_kept_lines
  for _, point in ipairs(points) do
    local state = job.folder.known[point.id]
    if state.status == "ok" then
      local needs_file = job.sweep.seed_result or not job.sweep.own_run and not has_file[point.file]
      if needs_file then outcome.write_seed(job, point, records.load_point(path, point.id)) end
    else
      job.bar.failed = job.bar.failed + 1
    end
    if records.status_word(path, point.id) ~= state.status then records.write_status(job.folder.writer, point.id, state.status) end
    if is_brief then
      job.bar.done = job.bar.done + 1
    elseif state.status == "ok" then
      job.bar:skip(point.label .. ": already done")
    else
      job.bar:skip(("%s: stands: %s"):format(point.label, outcome.describe(records.load_point(path, point.id))))
    end
  end
  if is_brief then job.bar:say(("[%d/%d] %d points are done or stand"):format(job.bar.done, job.bar.total, #points)) end
end

--- Whether a point that takes as long as the longest so far would not end within the budget of this call. The first may always
-- begin.
local function is_over_budget(job)
  local budget = job.options.budget
  return budget and job.longest > 0 and native.launch.clock() - job.began + job.longest > budget
end

--- Splits points into those whose results stand, and those to run.
local function sorted_out(job)
  local known, kept, waiting = job.folder.known, {}, {}
  for _, point in ipairs(job.points) do
    local is_kept = folders.is_settled(known[point.id], job.options)
    table.insert(is_kept and kept or waiting, point)
    if not is_kept then job.bar:expect(kind_of(point)) end
    if known[point.id] and known[point.id].status == "oom" and not job.options.retry_oom then outcome.note_oom(job, point) end
  end
  return kept, waiting
end

--- The points of a list, one after the other.
local function listed(waiting)
  local i = 0
  return function()
    i = i + 1
    return waiting[i]
  end
end

--- Runs a point from its beginning to what the user hears of it.
-- @treturn string|nil why the sweep is to stop: "interrupted", "fail-fast"
local function work_on(job, point, trial)
  local began = native.launch.clock()
  local why = not job.options.all and not trial and outcome.predicted_oom(job, point)
  local record = why and skip_predicted(job, point, why)
  if not why then
    job.bar:start(point, kind_of(point))
    record = M.run_point(job, point, trial)
    if not record then
      job.bar:leave(point)
      return "interrupted"
    end
    if record.status == "oom" then outcome.note_oom(job, point) end
    if record.status == "interrupted" then
      job.bar:leave(point)
      job.bar:say(point.label .. ": interrupted")
      return "interrupted"
    end
    job.bar:finish(point, outcome.describe(record), record.status ~= "ok" and not (trial and record.status == "skipped"))
  end
  if trial then trial:done(record) end
  job.longest = math.max(job.longest, native.launch.clock() - began)
  M.call_each(job, record)
  if job.options.fail_fast and outcome.has_failed(record) then return "fail-fast" end
end

--- Runs all points of a job that have no result yet.
-- @tparam table job { sweep, points, folder, options, bar, out_of_memory }
-- @treturn string|nil why it stopped early: "interrupted", "fail-fast" or "budget"
function M.run(job)
  local launch, parallel = native.launch, job.options.parallel or 1
  job.device = device.new(job.options, function(text) job.bar:say(text) end, function() return launch.interrupts() > 0 end)
  job.began, job.longest, job.bar.side_by_side = launch.clock(), 0, parallel
  if parallel > 1 then
    job.bar:say(("note: %d points side by side share this machine: their times are not those of points that run alone"):format(parallel))
  end
  local kept, waiting = sorted_out(job)
  M.keep_all(job, kept)
  local next_point = job.sweep.search and require("moonshard.sweep.searching").source(job, waiting) or listed(waiting)
  local stop
  side_by_side.run(parallel, function()
    if stop or job.failure then return nil end
    if launch.interrupts() > 0 then
      stop = "interrupted"
      return nil
    end
    if is_over_budget(job) then
      job.bar:say(("budget: %g s are nearly over, the next point may not end within them"):format(job.options.budget))
      stop = "budget"
      return nil
    end
    local point, trial = next_point()
    return point and function()
      local why = work_on(job, point, trial)
      stop = stop or why
    end
  end, function(message) job.failure = job.failure or message end)
  if job.failure then error(job.failure, 0) end
  return stop
end

return M
