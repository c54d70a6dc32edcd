--- Timing and memory for %time, %timeit and %mem.
local complete = require "moonshard.complete"

local M = {}

local TARGET_SECONDS = 1.0
-- One sample must be long against the clock's own cost (tens of nanoseconds).
local MIN_SAMPLE_SECONDS = 1e-3
local UNITS = { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "us" }, { 1e-9, "ns" } }

--- Seconds in the unit that suits them.
-- @treturn string e.g. "1.234 ms"
function M.duration(seconds)
  for _, unit in ipairs(UNITS) do
    if seconds >= unit[1] then return ("%.4g %s"):format(seconds / unit[1], unit[2]) end
  end
  return ("%.4g ns"):format(seconds / 1e-9)
end

--- Quantile of sorted numbers by linear interpolation between neighbours.
-- @tparam number fraction 0 to 1
function M.quantile(sorted, fraction)
  local position = 1 + fraction * (#sorted - 1)
  local below = math.floor(position)
  local above = math.min(below + 1, #sorted)
  return sorted[below] + (position - below) * (sorted[above] - sorted[below])
end

local function timed_runs(fn, runs, now)
  local start = now()
  for _ = 1, runs do fn() end
  return now() - start
end

--- Call a function again and again for about a second.
-- @tparam function now wall clock in seconds
-- @tparam[opt] number target seconds
-- @treturn table `{ median, q1, q3, samples, runs }`, times in seconds per call
function M.repeat_timing(fn, now, target)
  target = target or TARGET_SECONDS
  local runs, spent = 1, timed_runs(fn, 1, now)
  local total, samples = spent, { spent }
  while spent < MIN_SAMPLE_SECONDS and total < target do
    runs = runs * 2
    spent = timed_runs(fn, runs, now)
    total = total + spent
    samples = { spent / runs }  -- shorter samples were only there to find the length
  end
  while total < target do
    spent = timed_runs(fn, runs, now)
    total = total + spent
    samples[#samples + 1] = spent / runs
  end
  table.sort(samples)
  return {
    q1 = M.quantile(samples, 0.25), median = M.quantile(samples, 0.5),
    q3 = M.quantile(samples, 0.75), samples = #samples, runs = runs,
  }
end

--- Bytes held now: the Lua heap after a full collection, and host tensors where they are counted.
-- @treturn table `{ lua, tensors }`; tensors is nil when they are not counted
function M.memory(module)
  -- Twice, because finalisers of the first pass free what the second one can collect.
  collectgarbage("collect")
  collectgarbage("collect")
  local held = { lua = collectgarbage("count") * 1024 }
  local ask = type(module) == "table" and complete.field(module, "memory")
  local ok, counted = false, nil
  if ask then ok, counted = pcall(ask) end
  if ok and type(counted) == "table" then held.tensors = tonumber(counted.cpu_allocated_bytes) end
  return held
end

local function change(label, before, after)
  return ("%s: %.0f -> %.0f bytes (%+.0f)"):format(label, before, after, after - before)
end

--- Text of two readings of `memory`.
function M.memory_change(before, after)
  local text = change("Lua heap", before.lua, after.lua)
  if before.tensors and after.tensors then
    text = text .. "\n" .. change("host tensors", before.tensors, after.tensors)
  end
  return text
end

return M
