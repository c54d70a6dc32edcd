--- What the plan predicts for the options of a point, measured or to be measured: its world of fake ranks is the cluster.
local lists = require "moonshard.lists"
local native = require "moonshard.native"

--- @tparam table options of an experiment, link and world among them
-- @tparam string machine file of the profile
-- @tparam[opt] table more of the cluster: fixed_segments
return function(options, machine, more)
  local own = lists.merged(options, {})
  own.world, own.link, own.device, own.seed = nil, nil, nil, nil
  local ranks = tonumber(tostring(options.world):match "^fake:(%d+)") or 1
  return native.plan.predict(own, lists.merged({ machine = machine, gpus = ranks, link = options.link }, more or {}))
end
