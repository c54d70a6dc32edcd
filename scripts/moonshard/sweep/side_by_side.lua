--- Work that goes on side by side: coroutines that pause while the processes they have started run.
local native = require "moonshard.native"

local M = {}

-- How long a process may have ended before anybody looks.
local period_s = 0.005

--- Gives the others their turn; outside of M.run it waits.
-- @tparam[opt] number seconds at least so long
function M.pause(seconds)
  local is_inside = coroutine.running() ~= nil and M.current == coroutine.running()
  if not is_inside then
    native.launch.sleep(seconds or period_s)
    return
  end
  local until_then = native.launch.clock() + (seconds or 0)
  repeat coroutine.yield() until native.launch.clock() >= until_then
end

--- Runs tasks, a number of them at a time, until there are none left.
-- @tparam number most at a time
-- @tparam function next_task a function, or nil when no task is to begin any more
-- @tparam function on_error is told of a task's error, once each; the others go on to their end
function M.run(most, next_task, on_error)
  local tasks, is_over = {}, false
  local function resume(task)
    M.current = task
    local ok, message = coroutine.resume(task)
    M.current = nil
    if not ok then on_error(message) end
    return coroutine.status(task) ~= "dead"
  end
  repeat
    while #tasks < most and not is_over do
      local work = next_task()
      is_over = work == nil
      local task = work and coroutine.create(work)
      if task and resume(task) then tasks[#tasks + 1] = task end
    end
    if #tasks > 0 then native.launch.sleep(period_s) end
    for i = #tasks, 1, -1 do
      if not resume(tasks[i]) then table.remove(tasks, i) end
    end
  until is_over and #tasks == 0
end

return M
