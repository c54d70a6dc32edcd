--- Where the time of a sweep went, and what makes it shorter: the hints of document 004 for slow runs, with seconds.
local lists = require "moonshard.lists"
local plot_points = require "moonshard.plot_points"
local statistics = require "moonshard.analyze.statistics"

local M = {}

--- Seconds of a point's steps: measured, warm-up, and everything else (model, data, profiled steps).
local function seconds_of(point)
  local whole = plot_points.metric(point, "end_to_end_s")
  if not whole then return nil end
  local measured, warmup = 0, 0
  for _, ms in ipairs(statistics.samples(point)) do measured = measured + ms / 1000 end
  for _, ms in ipairs(plot_points.part(point, "time", "warmup_ms")) do warmup = warmup + (plot_points.number(ms) or 0) / 1000 end
  return { whole = whole, measured = measured, warmup = warmup, rest = math.max(whole - measured - warmup, 0) }
end

--- Hints as text: where the seconds are, then what would save how many, the most first.
-- @tparam Runs results
-- @treturn string nil where no point has its times
function M.hints(results)
  local sum, by_mode, slowest = { whole = 0, measured = 0, warmup = 0, rest = 0 }, {}, nil
  local iterations, count = 0, 0
  for _, point in ipairs(results:select("ok")) do
    local seconds = seconds_of(point)
    if seconds then
      count = count + 1
      for key, value in pairs(seconds) do sum[key] = sum[key] + value end
      local mode = tostring(plot_points.axis_value(point, "mode"))
      by_mode[mode] = (by_mode[mode] or 0) + seconds.whole
      iterations = math.max(iterations, #statistics.samples(point))
      if not slowest or seconds.whole > slowest.seconds then slowest = { seconds = seconds.whole, point = point } end
    end
  end
  if count == 0 then return nil end
  local lines = { ("Time of the run: %.0f s in %d points: %.0f s of measured steps, %.0f s of warm-up, %.0f s of starting, data, models "
    .. "and profiled steps; the slowest point is %s, %.0f s"):format(sum.whole, count, sum.measured, sum.warmup, sum.rest,
    plot_points.name(slowest.point, plot_points.other_axes(results), true), slowest.seconds) }
  local hints = {}
  if iterations > statistics.least_steps then
    hints[#hints + 1] = { saved = sum.measured * (1 - statistics.least_steps / iterations),
      text = ("--num-iter %d instead of %d: the fewest that have an interval"):format(statistics.least_steps, iterations) }
  end
  for _, mode in ipairs(lists.keys(by_mode)) do
    if mode:match("ghost") or mode:match("^bookkeeping") then
      hints[#hints + 1] = { saved = by_mode[mode], text = ("without %s (--modes …)"):format(mode) }
    end
  end
  local layers = plot_points.number(slowest.point.options.num_layers)
  if layers and layers >= 4 then
    hints[#hints + 1] = { saved = (sum.measured + sum.warmup) / 2,
      text = ("--num-layers %d instead of %d: half the model, the same kinds of layers"):format(math.floor(layers / 2), layers) }
  end
  table.sort(hints, function(a, b) return a.saved > b.saved end)
  for _, hint in ipairs(hints) do
    if hint.saved >= 0.02 * sum.whole then lines[#lines + 1] = ("  about %4.0f s less: %s"):format(hint.saved, hint.text) end
  end
  return table.concat(lines, "\n")
end

return M
