--- Question: how long does the analysis of a large trace take?
-- Inputs: none; big_trace.py makes a trace in a temporary folder. Outputs: seconds of a critical path, a forecast and a difference.
-- Run: moonshard run scripts/bench/trace_speed.lua [EVENTS]
local ms = require "moonshard"
local native = require "moonshard.native"
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."

local events = tonumber(arg[1] or "1000000")
if not events or events < 1000 then error("trace_speed: expected a number of events from 1000, got " .. tostring(arg[1]), 0) end
for _, ending in ipairs { ".json", ".json.gz" } do
  local file = os.tmpname() .. ending
  if os.execute(("python3 %q %q %d"):format(here .. "/big_trace.py", file, events)) ~= 0 then
    error("trace_speed: big_trace.py failed; it needs python3", 0)
  end
  local function timed(what, action)
    local began = native.launch.clock()
    action()
    print(("%d events, %s: %s in %.2f s"):format(events, ending, what, native.launch.clock() - began))
  end
  timed("critical path", function() ms.trace.path(file) end)
  timed("what if", function() ms.trace.what_if(file, { names = { ["*gemm_kernel_1*"] = 0.5 } }) end)
  timed("difference", function() ms.trace.diff(file, file) end)
  os.remove(file)
end
