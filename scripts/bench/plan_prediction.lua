--- What the plan predicts for the options of a point, measured or to be measured: its world of fake ranks is the cluster.
local lists = require "moonshard.lists"
local native = require "moonshard.native"

--- @tparam table options of an experiment, link and world among them
-- @tparam string machine file of the profile
-- @tparam[opt] number memory_bytes of the device
return function(options, machine, memory_bytes)
  local own = lists.merged(options, {})
  own.world, own.link, own.device, own.seed = nil, nil, nil, nil
  local ranks = tonumber(tostring(options.world):match "^fake:(%d+)") or 1
  return native.plan.predict(own, { machine = machine, gpus = ranks, link = options.link, memory_bytes = memory_bytes })
end
