--- Runs points as a Slurm job array: one task per point, srun inside, results on the shared file system.
-- The result files decide the status of a point; squeue only shows which tasks have not ended.
local blame = require "moonshard.sweep.blame"
local folders = require "moonshard.sweep.folder"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local runner = require "moonshard.sweep.runner"
local scripts = require "moonshard.sweep.script"
local shell = require "moonshard.shell"

local M = {}

-- Slurm's MaxArraySize is 1001 unless its administrator raised it.
local most_tasks, poll_s = 1000, 1

--- Runs one of Slurm's programs; returns its output, whether it succeeded and how it ended.
local function call(job, words)
  local log = ("%s/%s.txt"):format(job.slurm.folder, words[1])
  return shell.run(lists.extend({ "/usr/bin/env" }, words), log, { timeout = 60, stops_on_interrupt = false })
end

--- Raises unless Slurm's programs are here.
function M.check()
  for _, program in ipairs { "sbatch", "srun", "squeue", "scancel" } do
    if not shell.first_line("command -v " .. program .. " 2>/dev/null") then
      blame("sweep:run: launcher = slurm: expected the program %s, got none; install Slurm or use launcher = local", program)
    end
  end
end

--- A value of an #SBATCH line, which sbatch reads and no shell: blanks need quotes, quotes and backslashes a backslash.
local function sbatch_value(text) return '"' .. text:gsub('[\\"]', "\\%0") .. '"' end

--- A folder in a file name with Slurm's own signs: %A is the job's number, %% a percent sign.
local function in_pattern(path) return (path:gsub("%%", "%%%%")) end

-- A task that has saved and asks to be started again (trainer:durable, a signal before the time limit) goes back into the queue, as does
-- one whose node was lost or given to somebody else. bash hears of a signal only while it waits.
local asks_again, most_restarts, seconds_before_limit = 75, 100, 60

--- The batch script of one array. Each task finds its point by its number.
local function script_of(job, array)
  local slurm, timeout = job.slurm, job.options.timeout
  local limit = timeout > 0 and ("timeout --kill-after=10 %g "):format(timeout) or ""
  local gpus = array.on_gpu and { ("#SBATCH --gres=gpu:%d"):format(array.nproc) } or {}
  return table.concat(lists.extend({
    "#!/bin/bash",
    "#SBATCH --job-name=" .. sbatch_value("moonshard" .. (job.sweep.name ~= "" and "_" .. job.sweep.name or "")),
    ("#SBATCH --array=1-%d"):format(#array.points),
    ("#SBATCH --ntasks=%d"):format(array.nproc),
    "#SBATCH --output=" .. sbatch_value(in_pattern(slurm.folder) .. "/task_%A_%a.txt"),
    "#SBATCH --open-mode=append", "#SBATCH --requeue", ("#SBATCH --signal=B:TERM@%d"):format(seconds_before_limit),
  }, gpus, {
    -- The node that runs a task must not check for the parent, which is on another machine.
    "unset MOONSHARD_PARENT_PID",
    ("id=$(sed -n \"${SLURM_ARRAY_TASK_ID}p\" %s)"):format(shell.quoted(array.list)),
    ("export %s=\"$(sed -n \"${SLURM_ARRAY_TASK_ID}p\" %s)\""):format(array.variable, shell.quoted(array.told)),
    ("point=%s/points/$id"):format(shell.quoted(slurm.path)),
    "mkdir -p \"$point\"; echo running >\"$point/status\"",
    ("%ssrun --ntasks=%d --output=\"${point//%%/%%%%}/log.rank%%t.txt\" --open-mode=append --kill-on-bad-exit=1 \\"):format(
      limit, array.nproc),
    "  " .. array.command .. " &",
    "work=$!",
    "trap 'asked=yes; kill -TERM $work' TERM",
    "wait $work; code=$?",
    "[ -n \"$asked\" ] && [ $code -gt 128 ] && { wait $work; code=$?; }",
    ("if [ $code = %d ] && [ \"${SLURM_RESTART_COUNT:-0}\" -lt %d ]; then"):format(asks_again, most_restarts),
    "  scontrol requeue \"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\" && exit 0",
    "fi",
    "echo $code >\"$point/exit_code.part\" && mv \"$point/exit_code.part\" \"$point/exit_code\"",
    "exit $code\n",
  }), "\n")
end

--- What srun runs for every point of an array: an experiment is told its id by word, a script by its variable.
local function command_of(job, words)
  if scripts.runs_points(job) then return table.concat(lists.map(words, shell.quoted), " ") end
  return ('%s %s %s "$id"'):format(shell.quoted(words[1]), words[2], shell.quoted(job.slurm.path))
end

--- Submits one array to Slurm; stores its number in the folder before anything else, so that no resumed sweep
-- submits it again.
local function submit(job, array)
  local slurm, records = job.slurm, native.records
  local ids = lists.column(array.points, "id")
  for _, point in ipairs(array.points) do
    records.remove_result(job.folder.writer, point.id)
    records.write_status(job.folder.writer, point.id, "running")
    os.remove(records.point_folder(job.folder.writer, point.id) .. "/exit_code")
  end
  array.list = ("%s/points_%d.txt"):format(slurm.folder, array.number)
  array.told = ("%s/points_%d.jsonl"):format(slurm.folder, array.number)
  local told = {}
  for i, point in ipairs(array.points) do
    local words, variables = scripts.child(job, point, false)
    array.variable, told[i] = next(variables)
    array.command = array.command or command_of(job, words)
  end
  records.write_file(job.folder.writer, ("slurm/points_%d.jsonl"):format(array.number), table.concat(told, "\n") .. "\n")
  records.write_file(job.folder.writer, ("slurm/points_%d.txt"):format(array.number), table.concat(ids, "\n") .. "\n")
  records.write_file(job.folder.writer, ("slurm/job_%d.sh"):format(array.number), script_of(job, array))
  local own_words = lists.matches(job.options.slurm_args or "", "%S+")
  local text, ok, ended = call(job, lists.extend({ "sbatch", "--parsable" }, own_words,
    { ("%s/job_%d.sh"):format(slurm.folder, array.number) }))
  array.job = text:match("(%d+)[;%w]*%s*$")
  if not ok or not array.job then
    error(("sweep:run: sbatch did not take the job (%s): %s"):format(ended, text:gsub("%s+$", "")), 0)
  end
  slurm.jobs[#slurm.jobs + 1] = { job = array.job, ids = ids }
  records.write_file(job.folder.writer, "slurm/jobs.json", records.to_json(slurm.jobs))
  job.bar:say(("submitted %d points as Slurm job array %s"):format(#ids, array.job))
end

-- Reasons of Slurm for a task to wait that pass by themselves. With others, as PartitionConfig, it may wait for ever.
local usual_reasons = lists.set { "None", "Priority", "Resources", "BeginTime", "Dependency", "JobArrayTaskLimit", "Cleaning", "Prolog" }

--- Says once why tasks do not begin.
local function say_why(job, number, reason)
  local key = number .. reason
  if usual_reasons[reason] or job.slurm.said[key] then return end
  job.slurm.said[key] = true
  job.bar:say(("Slurm does not begin with job %s: %s; see scontrol show job %s, and --slurm-args for what to ask of it"):format(
    number, reason, number))
end

--- Numbers of the tasks of a job that have not ended; nil when Slurm does not answer.
local function tasks_at_work(job, number)
  local text, ok = call(job, { "squeue", "--noheader", "--array", "--jobs=" .. number, "--format=%K %T %r" })
  -- Slurm forgets a job some minutes after its end.
  if not ok then return text:find("Invalid job id", 1, true) and {} or nil end
  local at_work = {}
  for task, state, reason in text:gmatch("(%d+) (%u+) ([^\n]*)") do
    at_work[tonumber(task)] = true
    if state == "PENDING" then say_why(job, number, reason) end
  end
  return at_work
end

--- Arrays of points that need the same number of ranks on the same kind of device.
local function group(job, points)
  local arrays, open = {}, {}
  for _, point in ipairs(points) do
    -- A function of the script is one process, whatever it starts.
    local nproc, on_gpu = not job.sweep.own_run and point.options.nproc or 1, point.options.device == "cuda"
    local key = ("%d %s"):format(nproc, tostring(on_gpu))
    local array = open[key]
    if not array or #array.points == most_tasks then
      array = { nproc = nproc, on_gpu = on_gpu, points = {} }
      arrays[#arrays + 1], open[key] = array, array
    end
    array.points[#array.points + 1] = point
  end
  return arrays
end

--- Jobs of an earlier parent that still have running tasks: they are waited for, not submitted again.
local function adopt(job, waiting)
  if not native.launch.exists(job.slurm.folder .. "/jobs.json") then return {} end
  local by_id, adopted = {}, {}
  for _, point in ipairs(waiting) do by_id[point.id] = point end
  job.slurm.jobs = native.records.read_json(job.slurm.folder .. "/jobs.json")
  for _, earlier in ipairs(job.slurm.jobs) do
    local at_work = tasks_at_work(job, earlier.job) or {}
    local array = { job = earlier.job, points = {}, tasks = {} }
    for task, id in ipairs(earlier.ids) do
      if at_work[task] and by_id[id] then
        array.points[#array.points + 1] = by_id[id]
        array.tasks[by_id[id]] = task
      end
    end
    if #array.points > 0 then
      job.bar:say(("Slurm job array %s still has %d of these points; waiting for them"):format(earlier.job, #array.points))
      adopted[#adopted + 1] = array
    end
  end
  return adopted
end

--- How a task ended, from what its script left.
local function end_of(job, point)
  local code = tonumber(shell.read(("%s/points/%s/exit_code"):format(job.slurm.path, point.id)) or "")
  if not code then return { ended_by = "itself", signal = 0, text = "no exit code (cancelled, or its node went down)" } end
  if code == 124 and job.options.timeout > 0 then return { ended_by = "timeout", signal = 0, text = "timeout" } end
  return { ended_by = "itself", signal = code > 128 and code - 128 or 0, text = "exit code " .. code }
end

local function settle(job, point, ended)
  local record = outcome.settle(job, point, ended, job.slurm.attempt)
  job.bar:finish(point, outcome.describe(record), record.status ~= "ok")
  runner.call_each(job, record)
  return record
end

--- Checks one array: records what has ended. Returns how many points are still running.
-- A record may appear late on shared file systems: it counts as missing only at the second check.
local function look(job, array)
  local at_work, left = tasks_at_work(job, array.job), 0
  for i, point in ipairs(array.points) do
    if not array.settled[point] then
      local record = native.records.load_point(job.folder.path, point.id)
      local task = array.tasks and array.tasks[point] or i
      local has_ended = at_work and not at_work[task]
      local is_cancelled = has_ended and native.launch.interrupts() > 0 and not record.has_record
      if record.status == "ok" or (has_ended and (array.missing[point] or is_cancelled)) then
        array.settled[point] = true
        local ended = is_cancelled and { ended_by = "caller", signal = 0, text = "scancel" } or end_of(job, point)
        local settled = settle(job, point, ended)
        if job.options.fail_fast and outcome.has_failed(settled) then job.slurm.stop = "fail-fast" end
      else
        array.missing[point] = has_ended
        left = left + 1
      end
    end
  end
  return left
end

--- First Ctrl-C: pending tasks are cancelled. Second: all tasks.
local function cancel(job, arrays, everything)
  for _, array in ipairs(arrays) do
    call(job, lists.extend({ "scancel" }, everything and {} or { "--state=PENDING" }, { array.job }))
  end
end

local function wait_for(job, arrays)
  local cancelled = 0
  for _, array in ipairs(arrays) do array.settled, array.missing = {}, {} end
  while true do
    local presses = math.min(math.max(native.launch.interrupts(), job.slurm.stop and 2 or 0), 2)
    if presses > cancelled then
      cancelled = presses
      job.bar:say(presses == 1 and "Ctrl-C: points that have not begun are taken back; press again to cancel all"
        or "cancelling all points")
      cancel(job, arrays, presses == 2)
    end
    local left = 0
    for _, array in ipairs(arrays) do left = left + look(job, array) end
    if left == 0 then break end
    job.bar:work_on(("%d points with Slurm"):format(left))
    job.bar:tick()
    native.launch.sleep(poll_s)
  end
  job.bar.at_work = {}
  if job.slurm.stop then return job.slurm.stop end
  return cancelled > 0 and "interrupted" or nil
end

local function submit_all(job, points, arrays)
  for _, array in ipairs(group(job, points)) do
    array.number = #job.slurm.jobs + 1
    submit(job, array)
    arrays[#arrays + 1] = array
  end
end

--- Runs all points of a job that have no result yet.
function M.run(job)
  local path = native.records.path(job.folder.writer)
  path = shell.first_line("readlink -f " .. shell.quoted(path)) or path
  job.slurm = { path = path, folder = path .. "/slurm", jobs = {}, attempt = 1, said = {} }
  native.records.write_file(job.folder.writer, "slurm/.keep", "")
  local waiting, kept = {}, {}
  for _, point in ipairs(job.points) do
    local record = job.folder.known[point.id]
    if folders.is_settled(record, job.options) then
      kept[#kept + 1] = point
    else
      waiting[#waiting + 1] = point
      job.bar:expect(tostring(point.options.mode))
    end
  end
  runner.keep_all(job, kept)
  local arrays = adopt(job, waiting)
  local is_adopted = lists.set(lists.extend({}, unpack(lists.column(arrays, "points"))))
  submit_all(job, lists.select(waiting, function(point) return not is_adopted[point] end), arrays)
  local stopped = wait_for(job, arrays)
  while not stopped and job.slurm.attempt <= job.options.retry do
    local again = lists.select(waiting, function(point) return outcome.has_failed(job.folder.known[point.id]) end)
    if #again == 0 then break end
    job.bar:say(("%d points failed; retry %d of %d"):format(#again, job.slurm.attempt, job.options.retry))
    job.bar.done, job.bar.failed, job.slurm.attempt = job.bar.done - #again, job.bar.failed - #again, job.slurm.attempt + 1
    arrays = {}
    submit_all(job, again, arrays)
    stopped = wait_for(job, arrays)
  end
  return stopped
end

return M
