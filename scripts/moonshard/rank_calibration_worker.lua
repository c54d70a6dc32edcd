--- A process of rank_calibration.lua: its profile, or collectives between it and the other ranks.
-- Run by that module: moonshard run rank_calibration_worker.lua profile|collectives DEVICE SECONDS FILE
local ms = require "moonshard"
local native = require "moonshard.native"

local what, device, seconds, path = unpack(arg)
if what == "profile" then
  native.plan.write_profile(native.plan.calibrate(device, tonumber(seconds)), path)
  return
end
local measured = native.plan.collectives(device, tonumber(seconds))
if ms.dist.rank() == 0 then
  local file = assert(io.open(path, "w"))
  file:write(native.records.to_json(measured))
  file:close()
end
ms.dist.barrier()
