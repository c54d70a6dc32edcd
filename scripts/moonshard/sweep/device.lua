--- GPUs of a sweep: one run at a time on each, and none before the last one's memory has drained.
-- The parent uses NVML, never CUDA: its own CUDA context would hold memory.
local folders = require "moonshard.sweep.folder"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local side_by_side = require "moonshard.sweep.side_by_side"

local M = {}
local Device = {}
Device.__index = Device

local slack_bytes = 64 * 2 ^ 20

local function gib(bytes) return ("%.2f GiB"):format(bytes / 2 ^ 30) end

local function list_gpus() return package.loaded["moonshard"].gpus() end

--- Who holds memory on a GPU: "pid 123 (python3, 1.50 GiB)".
local function holders(gpu)
  local parts = lists.map(gpu.processes, function(process)
    return ("pid %d (%s%s)"):format(process.pid, process.name, process.bytes and ", " .. gib(process.bytes) or "")
  end)
  return #parts > 0 and table.concat(parts, ", ") or "a process that the driver does not name"
end

--- @tparam table options lock = false leaves the locks alone; drain_timeout in seconds
-- @tparam function say prints a line
-- @tparam function stopped whether the user wants to stop
function M.new(options, say, stopped)
  return setmetatable({ options = options, say = say, stopped = stopped, level = {} }, Device)
end

--- The memory in use on each GPU before the first point: what draining goes back to.
function Device:note_levels()
  if self.noted then return end
  self.noted = true
  local listing = list_gpus()
  if #listing.gpus == 0 then self.say("note: the GPU cannot be watched: " .. listing.absence) end
  for _, gpu in ipairs(listing.gpus) do
    self.level[gpu.uuid] = gpu.memory_used_bytes
    if #gpu.processes > 0 then
      self.say(("note: GPU %d has %s in use before the sweep, by %s"):format(gpu.index, gib(gpu.memory_used_bytes), holders(gpu)))
    end
  end
end

--- Locks on as many of the candidates as are needed; nil and the holder's text when some are taken.
local function try_locks(candidates, needed, what)
  local launch, locks, chosen, holder = native.launch, {}, {}, nil
  local folder = launch.gpu_lock_folder()
  for _, gpu in ipairs(candidates) do
    if #locks == needed then break end
    local lock = launch.lock(("%s/%s.lock"):format(folder, gpu.uuid:gsub("[^%w-]", "_")), folders.owner_text() .. ", " .. what)
    if type(lock) == "string" then
      holder = holder or ("GPU %d is in use by %s"):format(gpu.index, lock)
    else
      locks[#locks + 1], chosen[#chosen + 1] = lock, gpu
    end
  end
  if #locks == needed then return locks, chosen end
  for _, lock in ipairs(locks) do launch.unlock(lock) end
  return nil, holder
end

--- Waits until the memory of a GPU is back to its level; at most the time allowed, then goes on with a warning.
function Device:drain(uuid)
  local launch = native.launch
  local start, said = launch.clock(), false
  while not self.stopped() do
    local gpu = lists.select(list_gpus().gpus, function(each) return each.uuid == uuid end)[1]
    local level = self.level[uuid]
    if not gpu or not level or gpu.memory_used_bytes <= level + slack_bytes then return end
    local waited = launch.clock() - start
    local over = ("GPU %d has %s in use, %s more than at the start, held by %s"):format(gpu.index, gib(gpu.memory_used_bytes),
      gib(gpu.memory_used_bytes - level), holders(gpu))
    if waited >= self.options.drain_timeout then
      self.say(("warning: %s; going on after %d s: this point may lack that memory"):format(over, waited))
      return
    end
    if waited > 2 and not said then
      said = true
      self.say(over .. "; waiting until it has drained")
    end
    side_by_side.pause(0.1)
  end
end

--- The GPUs for a point: waits for their locks and for their memory.
-- @treturn table { variables } for the child; release() it afterwards. nil when the user wants to stop.
function Device:acquire(point)
  if point.options.device ~= "cuda" then return { variables = {}, locks = {} } end
  self:note_levels()
  local candidates = list_gpus().gpus
  if point.gpu then candidates = { candidates[point.gpu + 1] } end
  if #candidates == 0 then return { variables = {}, locks = {} } end  -- the child says which GPUs there are
  local needed = math.min(point.options.nproc or 1, #candidates)
  local chosen, said
  local locks = {}
  if self.options.lock == false then
    chosen = { unpack(candidates, 1, needed) }
  else
    repeat
      locks, chosen = try_locks(candidates, needed, point.label)
      if not locks then
        if said ~= chosen then self.say(chosen .. "; waiting for it (--no-lock would not)") end
        said = chosen
        side_by_side.pause(0.2)
      end
    until locks or self.stopped()
    if not locks then return nil end
  end
  for _, gpu in ipairs(chosen) do self:drain(gpu.uuid) end
  return { variables = { CUDA_VISIBLE_DEVICES = table.concat(lists.column(chosen, "uuid"), ",") }, locks = locks }
end

--- Releases the locks.
function Device.release(held)
  for _, lock in ipairs(held.locks) do native.launch.unlock(lock) end
end

return M
