--- Machine profiles: those that ship (moonshard/machines), a file, or this user's calibration of the present device.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local guard = require "moonshard.options_guard"
local rank_calibration = require "moonshard.rank_calibration"

local M = {}
local folder = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" .. "/machines"

--- Names of the profiles that ship.
M.shipped = { "h200", "h100", "a100", "cpu" }

local function read(path)
  local profile = native.records.read_json(path)
  profile.file = path
  return profile
end

--- A profile that ships; "cpu" is that of this processor's architecture.
function M.read_shipped(name)
  if name == "cpu" then name = jit.arch == "arm64" and "cpu_aarch64" or "cpu_x86_64" end
  return read(("%s/%s.json"):format(folder, name))
end

--- This user's calibration of the present device, where so many ranks share it if there is one of them; nil without one.
function M.calibrated(device, ranks)
  local name = native.plan.device_name(device or "auto")
  for _, count in ipairs { ranks or 1, 1 } do
    local file = native.plan.calibration_file(name, count)
    if file ~= "" and native.launch.exists(file) then return read(file) end
  end
end

--- The profile of a name, of a file, or of this machine where nothing is given.
-- @tparam[opt] string name "h200", "this", or the path of a profile
-- @tparam[opt] number level of the caller, for errors
-- @tparam[opt] number ranks of a machine
function M.find(name, level, ranks)
  if name == nil or name == "this" then
    local own = M.calibrated("auto", ranks)
    if own then return own end
    if name == "this" then
      error("ms.plan: option 'gpu': expected a calibration of this machine, got none; make one with 'moonshard plan --calibrate'",
        level + 1)
    end
    return M.read_shipped "cpu"
  end
  if lists.contains(M.shipped, name:lower()) then
    local profile = M.read_shipped(name:lower())
    -- This very device, measured here, is better known than any that ships.
    local own = native.plan.device_name("auto") == profile.device and M.calibrated()
    return own or profile
  end
  if name:find "%.json$" and native.launch.exists(name) then return read(name) end
  error(("ms.plan: option 'gpu': expected %s, this, or the file of a profile, got '%s'%s"):format(table.concat(M.shipped, ", "), name,
    guard.hint(name, M.shipped)), level + 1)
end

--- The link between GPUs of such a device, which one alone cannot measure: that of the same kind among those that ship.
local function link_of(device)
  local function kind(name) return (name:gsub("%-%d+GB$", "")) end
  for _, name in ipairs(M.shipped) do
    local profile = M.read_shipped(name)
    if profile.kind ~= "cpu" and kind(profile.device) == kind(device) then return profile.link end
  end
end

--- Measures the present device, and keeps the result where M.find looks for it.
-- @tparam[opt] number ranks of this machine: their collectives are timed, too, and a CPU's rates with all of them at work
-- @treturn table the profile
-- @treturn string its file; "" where there is no place for one
function M.calibrate(device, seconds, ranks)
  ranks = ranks or 1
  local profile = ranks > 1 and rank_calibration.measure(device or "auto", seconds or 60, ranks)
    or native.plan.calibrate(device or "auto", seconds or 60)
  profile.name, profile.link = profile.device, link_of(profile.device)
  local before = profile.kind ~= "cpu" and M.calibrated(device) or {}
  for _, rate in ipairs(before.collectives or {}) do -- GPUs have one file, whatever the number of ranks
    profile.collectives = profile.collectives or {}
    if rate.ranks ~= ranks then table.insert(profile.collectives, rate) end
  end
  local file = native.plan.calibration_file(profile.device, profile.kind == "cpu" and ranks or 1)
  if file ~= "" then native.plan.write_profile(profile, file) end
  return profile, file
end

return M
