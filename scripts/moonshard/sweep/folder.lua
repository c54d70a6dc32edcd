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

--- Writes sweep.json.
function M.write_plan(writer, sweep)
  local points = lists.map(sweep.points, function(point)
    return { id = point.id, file = point.file, asked = point.asked, options = point.options }
  end)
  native.records.write_sweep(writer, { name = sweep.name, request = sweep.request, axes = sweep.axes, points = points })
end

--- A new folder with the frozen grid.
function M.create(sweep)
  local records = native.records
  local ok, writer = pcall(records.create, sweep.out, sweep.name)
  if not ok then blame("%s", tostring(writer):gsub("^records%.create: ", "")) end
  local path = records.path(writer)
  local lock = lock_or_blame(path)
  records.write_environment(writer)
  M.write_plan(writer, sweep)
  return { writer = writer, path = path, lock = lock, known = {} }
end

--- Points of a folder by id; nil and the reason where it is no run folder.
function M.known_points(path)
  local ok, loaded = pcall(native.records.load, path)
  if not ok then return nil, (tostring(loaded):gsub("^records%.load: ", "")) end
  local known = {}
  for _, point in ipairs(loaded.points) do known[point.id] = point end
  return known
end

--- The first of a sweep's points that is not among these.
local function missing_point(sweep, known)
  for _, point in ipairs(sweep.points) do
    if not known[point.id] then return point end
  end
end

--- An earlier folder, whose points must be ours.
function M.open(sweep, path)
  local known, reason = M.known_points(path)
  if not known then blame("%s", reason) end
  local missing = missing_point(sweep, known)
  if missing then
    blame("sweep:run: expected the grid of %s, got a point it does not have (%s); start a new run instead", path, missing.label)
  end
  local lock = lock_or_blame(path)
  -- Opened after the lock: opening removes what dead writers left, and a live one must not lose its file.
  return { writer = native.records.open(path), path = path, lock = lock, known = M.known_points(path) }
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
  if not record.result.status then return false end  -- a status without a record: the file was lost
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
