--- ms.log: run folders that any script writes, without a sweep. Results load, print and draw as any others.
local again = require "moonshard.report.again"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local own_record = require "moonshard.own_record"
local scripts = require "moonshard.sweep.script"

local RunLog = {}
RunLog.__index = RunLog
local M = { class = RunLog }

M.run_options = { "name", "out", "options", "tags", "note" }
-- Seconds between writes of the steps so far: a script that is killed loses at most as much. Writing takes a twentieth of the time at
-- most: a record has all steps.
local write_every, write_share = 1, 20

local function check_request(given, level)
  local request = guard.check("ms.log.run", given, M.run_options, level + 1)
  for key, wanted in pairs { name = "string", out = "string", options = "table", tags = "table", note = "string" } do
    if request[key] ~= nil and type(request[key]) ~= wanted then
      error(("ms.log.run: option '%s': expected a %s, got %s"):format(key, wanted == "string" and "text" or "table",
        tostring(request[key])), level + 1)
    end
  end
  for _, tag in ipairs(request.tags or {}) do
    if type(tag) ~= "string" then
      error(("ms.log.run: option 'tags': expected a list of texts, got %s"):format(tostring(tag)), level + 1)
    end
  end
  return request
end

--- sweep.json of all points so far. Their options are the axes: nobody has said which of them matter.
local function write_plan(folder)
  local axes = {}
  for _, point in ipairs(folder.points) do
    for name in pairs(point.options) do axes[name] = true end
  end
  native.records.write_sweep(folder.writer,
    { name = folder.name, request = folder.request, axes = lists.keys(axes), points = folder.points })
end

--- A new id: a hash of the options, with a number where another point has the same ones.
local function new_id(folder, options)
  local hash, count = native.records.options_hash(options), 1
  local taken = lists.set(lists.column(folder.points, "id"))
  local id = hash
  while taken[id] do
    count = count + 1
    id = ("%s-%d"):format(hash, count)
  end
  return id
end

local function write_record(self, record, is_final)
  if not self.folder.writer then return end
  local began = native.launch.clock()
  native.records.write_point(self.folder.writer, self.id,
    lists.merged(record, { schema_version = 1, id = self.id, options = self.options }))
  native.records.write_status(self.folder.writer, self.id, record.status)
  -- The whole index: points that it does not know yet may have come.
  if is_final then native.records.write_index(self.folder.writer) end
  self.written_at, self.num_written = native.launch.clock(), #self.steps
  self.write_again = self.written_at + math.max(write_every, write_share * (self.written_at - began))
end

--- The record of a point that nobody has finished, which stands where its script is killed.
local function write_so_far(self)
  local last = self.steps[#self.steps]
  write_record(self, { status = "interrupted", own_metrics = {}, steps = own_record.list(self.steps),
    error = ("no finish(): the script is at work or ended after %s"):format(last and "step " .. ("%.14g"):format(last.step) or "no step") })
end

--- Writes what a handle has logged since its last write when the script lets go of it, or ends. Tables have no finalizer in this Lua,
-- so that a userdata stands for it.
local function write_at_end(self)
  local guardian = newproxy(true)
  debug.getmetatable(guardian).__gc = function()
    if not self.is_done and #self.steps > self.num_written then pcall(write_so_far, self) end
  end
  return guardian
end

local function begin(folder, options, level)
  options = lists.merged(own_record.check_values("ms.log.run: options", options or {}, level + 1))
  local self = setmetatable({ folder = folder, options = options, is_done = false, began = native.launch.clock() }, RunLog)
  local tell
  if folder.writer then
    self.path, self.id = folder.path, new_id(folder, options)
    local log_file = native.records.point_folder(folder.writer, self.id) .. "/log.rank0.txt"
    tell = function(line) native.files.append_private(log_file, line .. "\n") end
  end
  self.add, self.steps = own_record.step_log(self.began, tell or function() end)
  if folder.writer then
    table.insert(folder.points, { id = self.id, file = ("point_%s_result.json"):format(self.id), asked = options, options = options })
    write_plan(folder)
    write_so_far(self)
    self.guardian = write_at_end(self)
  end
  return self
end

--- Whether this process is one of several that run the script: another rank than the first, or a point of the script's sweep.
local function is_copy() return package.loaded["moonshard"].dist.rank() ~= 0 or scripts.own_task() ~= nil end

--- Makes a run folder with one point, which the script fills. Of several ranks the first writes; the others' handles do nothing.
-- @tparam[opt] table given name, out ("results"), options (of the first point), tags, note
-- @treturn RunLog
function M.run(given)
  local request = check_request(given, 2)
  if is_copy() then return begin({ points = {} }, request.options, 2) end
  local ok, writer = pcall(native.records.create, request.out or "results", request.name or "")
  if not ok then error("ms.log.run: " .. tostring(writer):gsub("^records%.create: ", ""), 2) end
  local command = scripts.request().again
  local folder = { writer = writer, path = native.records.path(writer), points = {}, name = request.name or "",
    request = { tags = request.tags, note = request.note, command = command and again.without_secrets(command) } }
  native.records.write_environment(writer)
  local log = begin(folder, request.options, 2)
  return log
end

--- Goes on with the first point of a folder that its script left; its steps are to be put into `steps`. For Trainer:fit.
-- @tparam string path
-- @treturn RunLog
function M.go_on(path)
  local planned = native.records.planned(native.records.table(path), 1)
  local folder = { writer = native.records.open(path), path = path, points = { planned }, name = "", request = {} }
  local self = setmetatable({ folder = folder, options = planned.options, is_done = false, began = native.launch.clock(), path = path,
    id = planned.id, num_written = 0 }, RunLog)
  local log_file = native.records.point_folder(folder.writer, self.id) .. "/log.rank0.txt"
  self.add, self.steps = own_record.step_log(self.began, function(line) native.files.append_private(log_file, line .. "\n") end)
  self.written_at, self.write_again = self.began, self.began
  self.guardian = write_at_end(self)
  return self
end

--- Leaves a point as it is: a run that was asked to end, and may go on later.
function M.leave(self)
  self.is_done = true
  write_so_far(self)
end

local function check_open(self, what, level)
  if not self.is_done then return end
  error(("%s: expected a point at work, got one that has ended; begin another with run:point { … }"):format(what), level + 1)
end

--- Notes a step: its number, and figures by name.
function RunLog:log(step, values)
  check_open(self, "run:log", 2)
  local ok, problem = pcall(self.add, step, values)
  if not ok then error(tostring(problem):gsub("^.-log: ", "run:log: "), 2) end
  if self.written_at and native.launch.clock() >= self.write_again then write_so_far(self) end
end

--- Ends the point well.
-- @tparam[opt] table metrics figures by name
-- @tparam[opt] table parts of the record that are no metrics, as its schema has them: for the library
-- @treturn string the run folder
function RunLog:finish(metrics, parts)
  check_open(self, "run:finish", 2)
  metrics = own_record.check_values("run:finish", metrics or {}, 2)
  self.is_done = true
  write_record(self, lists.merged(own_record.good(metrics, self.steps, native.launch.clock() - self.began), parts), true)
  return self.path
end

--- Ends the point without a result; its steps stay.
-- @tparam string reason
function RunLog:fail(reason)
  check_open(self, "run:fail", 2)
  self.is_done = true
  local text = tostring(reason or "no reason given")
  write_record(self, { status = native.launch.is_out_of_memory(text) and "oom" or "failed", error = text:match("^[^\n]*"),
    own_metrics = {}, steps = own_record.list(self.steps) }, true)
  return self.path
end

--- Begins another point in the same folder.
-- @tparam[opt] table options what tells it from the others
-- @treturn RunLog
function RunLog:point(options)
  local log = begin(self.folder, options, 2)
  return log
end

function RunLog:__tostring()
  return ("RunLog %s, point %s: %d steps%s"):format(tostring(self.path), tostring(self.id), #self.steps, self.is_done and ", ended" or "")
end

return M
