--- A sweep's run folder: made or opened again, locked against a second parent, and the status of its points.
local blame = require "moonshard.sweep.blame"
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}

--- Statuses that are kept when a sweep is resumed; points of any other status run again.
local stands = { ok = true, oom = true, skipped = true }

--- Who holds a lock: this process.
function M.owner_text()
  return ("pid %d on %s since %s"):format(native.launch.process_id(), native.launch.host_name(), os.date("%H:%M:%S"))
end

local function lock_or_blame(path)
  local lock = native.launch.lock(path .. "/.sweep.lock", M.owner_text())
  if type(lock) == "string" then
    blame("sweep:run: expected %s to be free, got a sweep at work in it (%s); wait for it or stop it", path, lock)
  end
  return lock
end

local points_at_a_time = 1000

--- A point of sweep.json: what it does not share with all others.
local function planned(sweep, point)
  local own = rawget(point, "own")
  return { id = point.id, file = not sweep.own_run and point.file or nil, asked = point.asked ~= own and point.asked or nil,
    options = own or point.options }
end

--- Writes sweep.json; very many points are handed over part by part.
function M.write_plan(writer, sweep)
  local records = native.records
  local head = { name = sweep.name, request = sweep.request, axes = sweep.axes, common = sweep.common }
  if not sweep.common then
    head.points = lists.map(sweep.points, function(point) return planned(sweep, point) end)
    records.write_sweep(writer, head)
    return
  end
  records.begin_sweep(writer, head)
  for begin = 1, #sweep.points, points_at_a_time do
    local part = {}
    for i = begin, math.min(begin + points_at_a_time - 1, #sweep.points) do part[#part + 1] = planned(sweep, sweep.points[i]) end
    records.add_points(writer, part)
  end
  records.end_sweep(writer)
end

--- A new folder with the frozen grid.
function M.create(sweep)
  local records = native.records
  local ok, writer = pcall(records.create, sweep.out, sweep.name)
  if not ok then blame("%s", tostring(writer):gsub("^records%.create: ", "")) end
  local path = records.path(writer)
  local lock = lock_or_blame(path)
  local written, problem = pcall(function()
    records.write_environment(writer)
    M.write_plan(writer, sweep)
  end)
  if not written then
    native.launch.unlock(lock)
    error(problem, 0)
  end
  return { writer = writer, path = path, lock = lock, known = {} }
end

-- Few states are different, and 100,000 points have one each.
local states = {}

--- What a sweep keeps in memory of a point's record: status and has_record.
function M.state(status, has_record)
  local key = (has_record and "" or "?") .. status
  states[key] = states[key] or { status = status, has_record = has_record }
  return states[key]
end

--- States of a folder's points by id; nil and the reason where it is no run folder.
-- @treturn table by id: status, has_record
-- @treturn table the folder, as native.records.table gives it
function M.known_points(path)
  collectgarbage() -- an earlier table of a large folder weighs more than the collector knows
  local ok, run_table = pcall(native.records.table, path)
  if not ok then return nil, (tostring(run_table):gsub("^records%.table: ", "")) end
  local known = native.records.states(run_table)
  for id, text in pairs(known) do known[id] = M.state(text:gsub("^%?", ""), text:sub(1, 1) ~= "?") end
  return known, run_table
end

--- The first of a sweep's points that is not among these.
local function missing_point(sweep, known)
  for _, point in ipairs(sweep.points) do
    if not known[point.id] then return point end
  end
end

--- Raises where sweep.json gives a point other options than the script does: its id stands for the script's.
local function check_plan(sweep, path, run_table)
  local digest = native.records.head(run_table).digest
  if digest == "right" then return end
  for _, point in ipairs(sweep.points) do
    local there, ours = native.records.planned(run_table, native.records.number(run_table, point.id)).options, point.options
    for _, key in ipairs(lists.keys(lists.merged(ours, there))) do
      if there[key] ~= ours[key] and type(ours[key]) ~= "table" then
        blame("sweep:run: %s/sweep.json: point %s: option '%s': expected %s, got %s; the file was changed after it was written: "
          .. "restore it, or start a new run", path, point.id, key, tostring(ours[key]), tostring(there[key]))
      end
    end
  end
  if digest == "wrong" then
    blame("sweep:run: %s/sweep.json: expected the file as it was written, got another digest, though its points are those of this sweep; "
      .. "restore it, or take its last line, \"digest\", out to go on with it as it is", path)
  end
end

--- Raises where a record is not what its point's process wrote.
local function check_records(path, run_table)
  local altered = native.records.altered(run_table)
  if #altered == 0 then return end
  blame("sweep:run: %s: expected records as they were written, got %s; restore the file, or remove it to run the point again", path,
    table.concat(altered, "; "))
end

--- Raises unless a folder is a run folder with all of a sweep's points.
local function check_grid(sweep, path)
  local known, reason = M.known_points(path)
  if not known then blame("%s", reason) end
  local missing = missing_point(sweep, known)
  if missing then
    blame("sweep:run: expected the grid of %s, got a point it does not have (%s); start a new run instead", path, missing.label)
  end
end

--- States of the points of a folder in which nothing was changed.
local function checked_points(sweep, path)
  local known, run_table = M.known_points(path)
  check_plan(sweep, path, run_table)
  check_records(path, run_table)
  return known
end

--- An earlier folder, whose points must be ours.
function M.open(sweep, path)
  check_grid(sweep, path)
  local lock = lock_or_blame(path)
  local ok, folder = pcall(function()
    local known = checked_points(sweep, path)
    collectgarbage()
    -- Opened after the lock: opening removes what dead writers left, and a live one must not lose its file.
    return { writer = native.records.open(path), path = path, lock = lock, known = known }
  end)
  if ok then return folder end
  native.launch.unlock(lock)
  error(folder, 0)
end

--- Whether a folder holds all of a sweep's points: scripts of several sweeps are resumed with several folders.
function M.fits(sweep, path)
  local known = M.known_points(path)
  return known ~= nil and not missing_point(sweep, known)
end

--- Whether a point needs no run, given what the folder knows of it. Out of memory is a result: it is kept unless a
-- rerun is requested; so are points that were skipped because of it.
function M.is_settled(record, options)
  if not record or not stands[record.status] then return false end
  if not record.has_record then return false end  -- a status without a record: the file was lost
  if record.status == "skipped" then return not (options.retry_oom or options.all) end
  return record.status == "ok" or not options.retry_oom
end

--- One line on what a resumed sweep finds, and what it is going to do.
function M.describe_resume(points, known, options)
  local count, todo = {}, {}
  for _, point in ipairs(points) do
    local record = known[point.id]
    local status = record and record.status or "planned"
    if M.is_settled(record, options) then
      count[status] = (count[status] or 0) + 1
    else
      todo[#todo + 1] = ("%s (%s)"):format(point.label, status == "running" and "was cut off" or status)
    end
  end
  local parts = {}
  if count.ok then parts[#parts + 1] = ("%d done"):format(count.ok) end
  if count.oom then parts[#parts + 1] = ("%d out of memory stand (--retry-oom runs them again)"):format(count.oom) end
  if count.skipped then parts[#parts + 1] = ("%d skipped stand (--all runs them)"):format(count.skipped) end
  local shown = table.concat(todo, ", ", 1, math.min(#todo, 8)) .. (#todo > 8 and (", and %d more"):format(#todo - 8) or "")
  parts[#parts + 1] = #todo == 0 and "nothing to do" or ("%d to do: %s"):format(#todo, shown)
  return "resume: " .. table.concat(parts, ", ")
end

function M.close(folder)
  if folder.lock then native.launch.unlock(folder.lock) end
  folder.lock = nil
end

return M
