--- Figure: communication of a step: time of the collectives, what of it nothing hides, and bytes (document 002).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

return function(results, options)
  local panels = {}
  for _, ask in ipairs {
    { "Time of the collectives", "work", "ms", "comm_work_ms" },
    { "Exposed time", "exposed", "ms", "comm_exposed_ms" },
    { "Bytes", "sent per step", "bytes", "comm_bytes" },
  } do
    panels[#panels + 1] = plot_spec.grouped(results, { series = options and options.series, title = ask[1], label = ask[2],
      measure = ask[3], value = function(point) return plot_points.metric(point, ask[4]) end })
  end
  if #panels == 0 then return nil, "needs points with status ok and a record of collectives (parallel = ddp or fsdp)" end
  local categories = #panels[1].x.categories
  return plot_spec.spec(plot_spec.title("Communication", results), panels,
    categories > 4 and { columns = 1, width = 1000, height = 60 + 330 * #panels } or { width = 480 * #panels + 60 })
end
