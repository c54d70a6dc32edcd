--- Runs points as a Slurm job array: one task per point, srun inside, results on the shared file system.
-- The result files decide the status of a point; squeue only shows which tasks have not ended.
local blame = require "moonshard.sweep.blame"
local folders = require "moonshard.sweep.folder"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local quoted = require("moonshard.shell").quoted
local runner = require "moonshard.sweep.runner"

local M = {}

-- Slurm's MaxArraySize is 1001 unless its administrator raised it.
local most_tasks, poll_s = 1000, 1

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

--- Runs one of Slurm's programs; returns its output and whether it succeeded.
local function call(words, log)
  os.remove(log)
  table.insert(words, 1, "/usr/bin/env")
  local ended = native.launch.run(words, log, nil, { timeout = 60, stops_on_interrupt = false })
  return read(log) or "", ended.exit_code == 0 and ended.signal == 0 and ended.ended_by == "itself", ended.text
end

--- Raises unless Slurm's programs are here.
function M.check()
  for _, program in ipairs { "sbatch", "srun", "squeue", "scancel" } do
    local pipe = io.popen("command -v " .. program .. " 2>/dev/null")
    local found = pipe:read("*l")
    pipe:close()
    if not found then
      blame("sweep:run: launcher = slurm: expected the program %s, got none; install Slurm or use launcher = local", program)
    end
  end
end

--- The batch script of one array. Each task finds its point by its number.
local function script_of(job, array)
  local options, slurm = job.options, job.slurm
  local lines = {
    "#!/bin/bash",
    "#SBATCH --job-name=moonshard" .. (job.sweep.name ~= "" and "_" .. job.sweep.name or ""),
    ("#SBATCH --array=1-%d"):format(#array.points),
    ("#SBATCH --ntasks=%d"):format(array.nproc),
    ("#SBATCH --output=%s/task_%%A_%%a.txt"):format(slurm.folder),
    "#SBATCH --open-mode=append",
  }
  if array.on_gpu then lines[#lines + 1] = ("#SBATCH --gres=gpu:%d"):format(array.nproc) end
  -- The node that runs a task must not check for the parent, which is on another machine.
  lines[#lines + 1] = "unset MOONSHARD_PARENT_PID"
  lines[#lines + 1] = ("id=$(sed -n \"${SLURM_ARRAY_TASK_ID}p\" %s)"):format(quoted(array.list))
  lines[#lines + 1] = ("point=%s/points/$id"):format(quoted(slurm.path))
  lines[#lines + 1] = "mkdir -p \"$point\"; echo running >\"$point/status\""
  local limit = options.timeout > 0 and ("timeout --kill-after=10 %g "):format(options.timeout) or ""
  lines[#lines + 1] = ("%ssrun --ntasks=%d --output=\"$point/log.rank%%t.txt\" --open-mode=append --kill-on-bad-exit=1 \\"):format(
    limit, array.nproc)
  lines[#lines + 1] = ("  %s point %s \"$id\""):format(quoted(native.launch.program("moonshard")), quoted(slurm.path))
  lines[#lines + 1] = "code=$?"
  lines[#lines + 1] = "echo $code >\"$point/exit_code.part\" && mv \"$point/exit_code.part\" \"$point/exit_code\""
  lines[#lines + 1] = "exit $code"
  return table.concat(lines, "\n") .. "\n"
end

local function words_of(text)
  local words = {}
  for word in text:gmatch("%S+") do words[#words + 1] = word end
  return words
end

--- Submits one array to Slurm; stores its number in the folder before anything else, so that no resumed sweep
-- submits it again.
local function submit(job, array)
  local slurm, records = job.slurm, native.records
  local ids = {}
  for i, point in ipairs(array.points) do
    ids[i] = point.id
    records.remove_result(job.folder.writer, point.id)
    records.write_status(job.folder.writer, point.id, "running")
    os.remove(records.point_folder(job.folder.writer, point.id) .. "/exit_code")
  end
  array.list = ("%s/points_%d.txt"):format(slurm.folder, array.number)
  records.write_file(job.folder.writer, ("slurm/points_%d.txt"):format(array.number), table.concat(ids, "\n") .. "\n")
  records.write_file(job.folder.writer, ("slurm/job_%d.sh"):format(array.number), script_of(job, array))
  local words = { "sbatch", "--parsable" }
  for _, word in ipairs(words_of(job.options.slurm_args or "")) do words[#words + 1] = word end
  words[#words + 1] = ("%s/job_%d.sh"):format(slurm.folder, array.number)
  local text, ok, ended = call(words, slurm.folder .. "/sbatch.txt")
  array.job = text:match("(%d+)[;%w]*%s*$")
  if not ok or not array.job then
    error(("sweep:run: sbatch did not take the job (%s): %s"):format(ended, text:gsub("%s+$", "")), 0)
  end
  slurm.jobs[#slurm.jobs + 1] = { job = array.job, ids = ids }
  records.write_file(job.folder.writer, "slurm/jobs.json", records.to_json(slurm.jobs))
  job.bar:say(("submitted %d points as Slurm job array %s"):format(#ids, array.job))
end

--- Numbers of the tasks of a job that have not ended; nil when Slurm does not answer.
local function tasks_at_work(job, number)
  local text, ok = call({ "squeue", "--noheader", "--array", "--jobs=" .. number, "--format=%K" }, job.slurm.folder .. "/squeue.txt")
  -- Slurm forgets a job some minutes after its end.
  if not ok then return text:find("Invalid job id", 1, true) and {} or nil end
  local at_work = {}
  for task in text:gmatch("%d+") do at_work[tonumber(task)] = true end
  return at_work
end

--- Arrays of points that need the same number of ranks on the same kind of device.
local function group(points)
  local arrays, open = {}, {}
  for _, point in ipairs(points) do
    local nproc, on_gpu = point.options.nproc or 1, point.options.device == "cuda"
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
  local text = read(job.slurm.folder .. "/jobs.json")
  if not text then return {} end
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
  local code = tonumber(read(("%s/points/%s/exit_code"):format(job.slurm.path, point.id)) or "")
  if not code then return { ended_by = "itself", signal = 0, text = "no exit code (cancelled, or its node went down)" } end
  if code == 124 and job.options.timeout > 0 then return { ended_by = "timeout", signal = 0, text = "timeout" } end
  return { ended_by = "itself", signal = code > 128 and code - 128 or 0, text = "exit code " .. code }
end

local function settle(job, point, ended)
  local record = outcome.settle(job, point, ended, job.slurm.attempt)
  job.bar.kind, job.bar.label, job.bar.started = point.options.mode, point.label, job.bar.started or native.launch.clock()
  job.bar:finish(outcome.describe(record), record.status ~= "ok")
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
      local is_cancelled = has_ended and native.launch.interrupts() > 0 and record.result.status == nil
      if record.status == "ok" or (has_ended and (array.missing[point] or is_cancelled)) then
        array.settled[point] = true
        local ended = is_cancelled and { ended_by = "caller", signal = 0, text = "scancel" } or end_of(job, point)
        local settled = settle(job, point, ended)
        if job.options.fail_fast and (settled.status == "failed" or settled.status == "timeout") then job.slurm.stop = "fail-fast" end
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
    local words = { "scancel" }
    if not everything then words[2] = "--state=PENDING" end
    words[#words + 1] = array.job
    call(words, job.slurm.folder .. "/scancel.txt")
  end
end

local function wait_for(job, arrays)
  local cancelled = 0
  for _, array in ipairs(arrays) do array.settled, array.missing = {}, {} end
  job.bar.started = native.launch.clock()
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
    job.bar.label = ("%d points with Slurm"):format(left)
    job.bar.started = job.bar.started or native.launch.clock()
    job.bar:tick()
    native.launch.sleep(poll_s)
  end
  job.bar.started = nil
  if job.slurm.stop then return job.slurm.stop end
  return cancelled > 0 and "interrupted" or nil
end

local function submit_all(job, points, arrays)
  for _, array in ipairs(group(points)) do
    array.number = #job.slurm.jobs + 1
    submit(job, array)
    arrays[#arrays + 1] = array
  end
end

--- Runs all points of a job that have no result yet.
function M.run(job)
  local path = native.records.path(job.folder.writer)
  local pipe = io.popen("readlink -f " .. quoted(path))
  path = pipe:read("*l") or path
  pipe:close()
  job.slurm = { path = path, folder = path .. "/slurm", jobs = {}, attempt = 1 }
  native.records.write_file(job.folder.writer, "slurm/.keep", "")
  local waiting = {}
  for _, point in ipairs(job.points) do
    local record = job.folder.known[point.id]
    if folders.is_settled(record, job.options) then
      if record.status == "ok" then outcome.write_seed(job, point, record) end
      job.bar:skip(("%s: %s"):format(point.label, record.status == "ok" and "already done" or "stands: " .. outcome.describe(record)))
    else
      waiting[#waiting + 1] = point
      job.bar:expect(tostring(point.options.mode))
    end
  end
  local arrays, is_adopted, rest = adopt(job, waiting), {}, {}
  for _, array in ipairs(arrays) do
    for _, point in ipairs(array.points) do is_adopted[point] = true end
  end
  for _, point in ipairs(waiting) do
    if not is_adopted[point] then rest[#rest + 1] = point end
  end
  submit_all(job, rest, arrays)
  local stopped = wait_for(job, arrays)
  while not stopped and job.slurm.attempt <= job.options.retry do
    local again = {}
    for _, point in ipairs(waiting) do
      local status = job.folder.known[point.id].status
      if status == "failed" or status == "timeout" then again[#again + 1] = point end
    end
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
