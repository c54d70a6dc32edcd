--- The script that a sweep belongs to: the line that goes on with it, and points that run it again.
--
-- A point of one's own (`run = function …`), and one that needs an engine or rule that the script has registered, is a process that
-- runs the script again up to the sweep. There it runs the point and ends. Sweeps before it give their results, which the
-- parent has on disk.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local own_point = require "moonshard.sweep.own_point"
local runs = require "moonshard.runs"
local shell = require "moonshard.shell"

local M = {}

local variable = "MOONSHARD_SCRIPT_POINT"
local state = { count = 0, folders = {} } -- sweeps of this process that have run

--- What `moonshard run SCRIPT --resume DIR` asks of the script's sweeps: as moonshard.sweep.maker takes it. The program leaves the
-- folders in `arg.resume`; elsewhere nothing is asked.
function M.request()
  local given = rawget(_G, "arg")
  if type(given) ~= "table" or type(given.resume) ~= "table" then return { set = {}, only = {}, run = {} } end
  if not state.request or state.given ~= given then
    local words = lists.map(lists.extend({ given[0] }, given), tostring)
    state.given, state.request = given, { set = {}, only = {}, run = {}, words = words,
      again = "moonshard run " .. table.concat(lists.map(words, shell.readable), " "),
      resume = #given.resume > 0 and given.resume or nil }
  end
  return state.request
end

--- The line to type in this folder that goes on with a sweep.
-- @tparam string command "moonshard sweep …", as records keep it
function M.as_typed(command, folder)
  local program = shell.readable(native.launch.program_as_typed())
  return ("%s --resume %s"):format((command:gsub("^moonshard", (program:gsub("%%", "%%%%")))), shell.readable(folder))
end

--- What the process of a point is told, so that it need not read the whole grid: JSON on one line.
function M.told(point) return native.records.to_json_line { id = point.id, options = point.options } end

--- Whether points of this sweep run its script again.
function M.runs_points(job)
  return job.sweep.by_command ~= nil and job.sweep.by_command.words ~= nil
    and (job.sweep.own_run ~= nil or native.launch.has_own_parts())
end

--- The program and its words for a point's process, and the variable that tells it which point.
-- @tparam table job a sweep at work
-- @tparam boolean starts_ranks false where somebody else starts all ranks of a point
-- @treturn {string,...} words
-- @treturn table variables
function M.child(job, point, starts_ranks)
  if not M.runs_points(job) then
    return { native.launch.program("moonshard"), "point", job.folder.path, point.id }, { MOONSHARD_POINT = M.told(point) }
  end
  local words, ranks = job.sweep.by_command.words, starts_ranks ~= false and point.options.nproc or 1
  local told = { script = words[1], number = state.count, folder = job.folder.path, id = point.id, earlier = state.folders,
    point = { id = point.id, options = point.options, asked = point.asked } }
  -- The ranks of an experiment each run the script up to the sweep.
  local as_ranks = not job.sweep.own_run and ranks > 1
    and { "--nproc", tostring(ranks), "--log-dir", native.records.make_point_folder(job.folder.writer, point.id) } or {}
  return lists.extend({ native.launch.program("moonshard"), "run" }, as_ranks, words), { [variable] = native.records.to_json_line(told) }
end

--- The point that this process is for; nil in all others.
function M.own_task()
  if state.task == nil then
    local text, given = os.getenv(variable), rawget(_G, "arg")
    local task = text and text ~= "" and native.records.parse_json(text)
    state.task = task and type(given) == "table" and given[0] == task.script and task or false
  end
  return state.task or nil
end

--- Called by every sweep:run that is no dry run. In a point's process it runs the point and ends the process, or gives the results
-- of a sweep before that one.
-- @treturn Runs nil where the sweep is to run
function M.begin(sweep)
  state.count = state.count + 1
  local task = M.own_task()
  if not task then return nil end
  if state.count < task.number then return runs.load(task.earlier[state.count]) end
  os.exit(own_point.run(sweep.own_run, task.folder, task.point))
end

--- Notes the folder of a sweep that has begun.
function M.note_folder(path) state.folders[state.count] = path end

return M
