--- Runs points on this machine, one process (or one group of ranks) after the other.
local device = require "moonshard.sweep.device"
local folders = require "moonshard.sweep.folder"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local scripts = require "moonshard.sweep.script"

local M = {}

--- Points of one mode are expected to take the same time.
local function kind_of(point) return tostring(point.options.mode) end

--- Printed once, at the first Ctrl-C.
local function note_first_interrupt(job)
  if job.said_interrupt or native.launch.interrupts() ~= 1 then return end
  job.said_interrupt = true
  job.bar:say("Ctrl-C: stopping after this point; press again to end it now")
end

--- One attempt: the child writes its record, we wait.
local function attempt(job, point, number)
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
  local ok, ended = pcall(launch.run, words, log, function()
    note_first_interrupt(job)
    job.bar:tick()
    return launch.interrupts() < 2
  end, { timeout = job.options.timeout, variables = lists.merged(held.variables, variables), stops_on_interrupt = false })
  job.device.release(held)
  if not ok then error(ended, 0) end
  ended.oom_kills_before = kills
  return outcome.settle(job, point, ended, number)
end

--- One point with its retries. Out of memory is a result, not a failure: it is not retried.
-- @treturn table the record; nil when the user stopped before it began
function M.run_point(job, point)
  for number = 1, job.options.retry + 1 do
    local record = attempt(job, point, number)
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

--- A point of an earlier run that is kept.
function M.keep(job, point, record)
  if record.status == "ok" then
    -- The parent may have been killed between the record and what it makes of it.
    outcome.write_seed(job, point, record)
    job.bar:skip(point.label .. ": already done")
  else
    job.bar:skip(("%s: stands: %s"):format(point.label, outcome.describe(record)))
    job.bar.failed = job.bar.failed + 1
  end
  native.records.write_status(job.folder.writer, point.id, record.status)
end

--- Whether a point that takes as long as the longest so far would not end within the budget of this call. The first may always
-- begin.
local function is_over_budget(job, began, longest)
  local budget = job.options.budget
  return budget and longest > 0 and native.launch.clock() - began + longest > budget
end

--- Runs all points of a job that have no result yet.
-- @tparam table job { sweep, points, folder, options, bar, out_of_memory }
-- @treturn string|nil why it stopped early: "interrupted", "fail-fast" or "budget"
function M.run(job)
  local launch, known = native.launch, job.folder.known
  job.device = device.new(job.options, function(text) job.bar:say(text) end, function() return launch.interrupts() > 0 end)
  for _, point in ipairs(job.points) do
    if not folders.is_settled(known[point.id], job.options) then job.bar:expect(kind_of(point)) end
    if known[point.id] and known[point.id].status == "oom" and not job.options.retry_oom then table.insert(job.out_of_memory, point) end
  end
  local began, longest = launch.clock(), 0
  for _, point in ipairs(job.points) do
    if launch.interrupts() > 0 then return "interrupted" end
    local earlier = known[point.id]
    if folders.is_settled(earlier, job.options) then
      M.keep(job, point, earlier)
    elseif is_over_budget(job, began, longest) then
      job.bar:say(("budget: %g s are nearly over, the next point may not end within them"):format(job.options.budget))
      return "budget"
    else
      local began_point = launch.clock()
      local why = not job.options.all and outcome.predicted_oom(job, point)
      local record = why and skip_predicted(job, point, why)
      if not why then
        job.bar:start(point, kind_of(point))
        record = M.run_point(job, point)
        if not record then return "interrupted" end
        if record.status == "oom" then table.insert(job.out_of_memory, point) end
        if record.status == "interrupted" then
          job.bar:say(point.label .. ": interrupted")
          return "interrupted"
        end
        job.bar:finish(outcome.describe(record), record.status ~= "ok")
      end
      longest = math.max(longest, launch.clock() - began_point)
      M.call_each(job, record)
      if job.options.fail_fast and outcome.has_failed(record) then return "fail-fast" end
    end
  end
end

return M
