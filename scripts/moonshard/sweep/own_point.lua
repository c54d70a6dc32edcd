--- A point in the process of a script: the script's own function, or an experiment with the script's engines.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local own_record = require "moonshard.own_record"

local M = {}

-- A line of the point's log tells each step.
local function tell(line)
  print(line)
  io.stdout:flush()
end

local function record_of_function(own_run, point)
  local began = native.launch.clock()
  local log, steps = own_record.step_log(began, tell)
  local values = lists.merged(point.options, point.asked)
  local metrics = own_record.check_values("ms.sweep: run", own_run(values, log))
  return own_record.good(metrics, steps, native.launch.clock() - began)
end

--- Runs a point and writes its record.
-- @tparam[opt] function own_run the sweep's own; without it the point is an experiment
-- @tparam table point id, options, asked: the sweep's parent has told them
-- @treturn number exit code of the process
function M.run(own_run, folder, point)
  local id, writer = point.id, native.records.attach(folder)
  local place = native.records.make_point_folder(writer, id)
  local ok, record = xpcall(function()
    if own_run then return record_of_function(own_run, point) end
    return native.run_point(point.options, place)
  end, function(message)
    if native.launch.interrupted() then return message end
    print(type(message) == "string" and debug.traceback(message, 2) or tostring(message))
    return message
  end)
  if not ok then
    if native.launch.interrupted() then return 130 end
    local text = tostring(record)
    record = { status = native.launch.is_out_of_memory(text) and "oom" or "failed", error = text:match("^[^\n]*") }
  end
  -- Of several ranks the first has the record of all; one that failed says so in its log, and the sweep's parent by its exit code.
  if package.loaded["moonshard"].dist.rank() == 0 then
    native.records.write_point(writer, id, lists.merged(record, { schema_version = 1, id = id, options = point.options }))
  end
  return record.status == "ok" and 0 or record.status == "oom" and 3 or 1
end

return M
