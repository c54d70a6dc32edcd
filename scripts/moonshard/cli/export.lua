--- moonshard export: results in formats of other programs.
local label_of = require("moonshard.analyze.memory").label_of
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local usage = require "moonshard.usage"

local formats = { "csv", "md", "latex", "json", "tensorboard" }

--- Seconds since 1970 of "2026-11-15T11:20:31Z"; the time zone of records is UTC.
local function seconds_of(text)
  local year, month, day, hour, minute, second = tostring(text or ""):match("^(%d+)-(%d+)-(%d+)[T ](%d+):(%d+):(%d+)")
  if not year then return os.time() end
  local here = os.time { year = year, month = month, day = day, hour = hour, min = minute, sec = second, isdst = false }
  local now = os.time()
  local utc = os.date("!*t", now)
  utc.isdst = false
  return here + os.difftime(now, os.time(utc))
end

--- Events of one point: its steps as scalars, its figures at the last step, its options as a text.
local function events_of(point)
  local start, list = seconds_of(point.result.created), {}
  local function add(tag, step, value)
    if type(value) == "number" and value == value then
      list[#list + 1] = { tag = tag, step = step, wall_time = start + step, value = value }
    end
  end
  local last = 0
  for i, step in ipairs(point.result.steps or {}) do
    last = step.step or i
    add("step/loss", last, step.loss)
    add("step/time_ms", last, step.time_ms)
    add("step/lr", last, step.lr)
    add("step/clip_fraction", last, step.clip_fraction)
    for name, ms in pairs(type(step.phases_ms) == "table" and step.phases_ms or {}) do add("phase_ms/" .. name, last, ms) end
  end
  for name, value in pairs(point.metrics) do add("metric/" .. name, last, value) end
  local breakdown = point.result.memory and point.result.memory.breakdown or {}
  for _, row in ipairs(breakdown) do add("memory_bytes/" .. row.owner, last, row.bytes) end
  local lines = { "| option | value |", "| --- | --- |" }
  for _, name in ipairs(lists.keys(point.options)) do lines[#lines + 1] = ("| %s | %s |"):format(name, tostring(point.options[name])) end
  list[#list + 1] = { tag = "options", step = 0, wall_time = start, text = table.concat(lines, "\n") }
  return list, start
end

local function safe_name(text) return (text:gsub("[^%w%._=,-]+", "_")) end

local function write_tensorboard(runs, folder)
  local measured = runs:select(function(point) return next(point.metrics) ~= nil end)
  for _, point in ipairs(measured) do
    local events, start = events_of(point)
    local name = safe_name(label_of(runs, point) .. "_" .. point.id:sub(1, 6))
    native.files.write_events(("%s/%s/events.out.tfevents.%010d.moonshard"):format(folder, name, start), events)
  end
  return #measured
end

--- All points whole, for other programs to read.
local function as_json(runs)
  local points = lists.map(runs.points, function(point)
    return { id = point.id, status = point.status, options = point.options, metrics = point.metrics,
      error = point.error ~= "" and point.error or nil, modelled = plot_points.modelled_part(point) }
  end)
  return native.records.to_json { name = runs.name, axes = runs.axes, points = points }
end

local function export(given)
  if not given.folder then usage.fail("export: expected a run folder, got nothing; moonshard export --help") end
  if not given.format then usage.fail("export: expected --format %s, got none", table.concat(formats, "|")) end
  local runs = usage.attempt("ms%.load:", "export:", require("moonshard.runs").load, given.folder)
  if given.format == "tensorboard" then
    local folder = given.output or given.folder .. "/tensorboard"
    if not given.output then native.files.check_inside(given.folder, folder) end
    local written = write_tensorboard(runs, folder)
    print(("%d points in %s; look at them: tensorboard --logdir %s"):format(written, folder, folder))
    return written > 0 and 0 or 1
  end
  local is_whole = given.format == "json" and not given.table
  local text = is_whole and as_json(runs) or runs:tabulate(given.table):to(given.format)
  if given.output then
    native.files.write(given.output, text)
    print(given.output)
  else
    io.write(text)
  end
  return 0
end

return {
  usage = "DIR --format csv|md|latex|json|tensorboard [--output FILE] [--table points|overhead|phases|memory]",
  about = "Writes the results of a run folder in a format of other programs: to the screen, or to a file.\n"
    .. "TensorBoard events are a folder with one sub-folder per point (DIR/tensorboard).",
  flags = {
    { name = "format", kind = "text", choices = formats, doc = "what to write" },
    { name = "output", kind = "text", aliases = { "out" }, value = "FILE", doc = "file to write to; a folder for tensorboard" },
    { name = "table", kind = "text", choices = { "points", "overhead", "phases", "memory" }, doc = "which table (points)" },
    { name = "folder", kind = "text", value = "DIR", doc = "the run folder" },
  },
  positional = "folder",
  takes_files = true,
  run = export,
}
