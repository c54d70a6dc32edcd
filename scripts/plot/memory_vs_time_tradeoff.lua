--- Figure: peak memory against step time, one mark per point.
local plot_spec = require "moonshard.plot_spec"

return function(results)
  local series, by_name = {}, {}
  for _, point in ipairs(results:select("ok")) do
    local name = point.options.mode
    local entry = by_name[name]
    if not entry then
      entry = { name = name, x = {}, y = {}, labels = {} }
      by_name[name] = entry
      series[#series + 1] = entry
    end
    local parts = {}
    for _, axis in ipairs(results.axes) do parts[#parts + 1] = ("%s=%s"):format(axis, tostring(point.options[axis])) end
    entry.x[#entry.x + 1] = point.metrics.median_time_ms
    entry.y[#entry.y + 1] = point.metrics.peak_memory_mb
    entry.labels[#entry.labels + 1] = table.concat(parts, " ")
  end
  if #series == 0 then return nil end
  local panel = {
    kind = "scatter", title = "", series = series,
    x = { label = "median step time", unit = "ms" },
    y = { label = "peak memory", unit = "MiB" },
  }
  return plot_spec.spec("Memory against time: " .. plot_spec.subject(results), { panel })
end
