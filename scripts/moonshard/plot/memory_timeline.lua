--- Figure: memory through the watched steps, stacked by owner, with the phases marked; one panel per engine (document 004). Of several
-- steps in a row (watch_steps) the bands are the steps: their phases would be too narrow to read.
-- Of many points the largest of each engine; above six engines one line of totals each.
local lists = require "moonshard.lists"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local most_panels = 6

local function is_of_several_steps(found)
  for _, entry in ipairs(found) do
    if #plot_points.list(entry.timeline.step_begins_ms) > 1 then return true end
  end
end

local function timeline_of(point)
  local timeline = point.status == "ok" and plot_points.part(point, "memory", "timeline")
  if not timeline or type(timeline.ms) ~= "table" or type(timeline.total) ~= "table" or #timeline.ms < 2
    or #timeline.total ~= #timeline.ms then return nil end
  for i, ms in ipairs(timeline.ms) do
    if not plot_points.number(ms) or i > 1 and ms < timeline.ms[i - 1] then return nil end
  end
  return timeline
end

--- Stretches of equal phase; of several steps one stretch each.
local function bands_of(timeline, per_ms)
  local bands, ms, begins = {}, timeline.ms, plot_points.list(timeline.step_begins_ms)
  if #begins > 1 then
    return lists.map(begins, function(begin, i)
      return { from = begin * per_ms, to = (begins[i + 1] or ms[#ms]) * per_ms, label = "step " .. i }
    end)
  end
  for i, phase in ipairs(plot_points.list(timeline.phase)) do
    local last = bands[#bands]
    if not ms[i] then break end
    if not last or last.label ~= plot_points.shown(phase) then
      if last then last.to = ms[i] * per_ms end
      bands[#bands + 1] = { from = ms[i] * per_ms, to = ms[#ms] * per_ms, label = plot_points.shown(phase) }
    end
  end
  return bands
end

local function total_line(timeline, per_ms, factor)
  return { name = "total", x = lists.map(timeline.ms, function(ms) return ms * per_ms end),
    y = lists.map(timeline.ms, function(_, i) return (plot_points.number(timeline.total[i]) or 0) * factor end) }
end

local function owner_series(timeline, per_ms, factor)
  local series, count, owners = {}, #timeline.ms, plot_points.list(timeline.owners)
  local total = total_line(timeline, per_ms, factor)
  for _, owner in ipairs(plot_points.owners_in_order(lists.map(lists.keys(owners), tostring))) do
    local values = plot_points.list(owners[owner])
    local y, largest = {}, 0
    for i = 1, count do
      y[i] = math.max(plot_points.number(values[i]) or 0, 0) * factor
      largest = math.max(largest, y[i])
    end
    if #values == count and largest > 0 then series[#series + 1] = { name = plot_points.shown(owner), x = total.x, y = y } end
  end
  return #series > 0 and series or { total }
end

--- With too many points for a panel each: of every engine the one that needs most.
local function largest_of_each(results, found)
  local axis = plot_points.series_axis(results)
  local best, order = {}, {}
  for _, entry in ipairs(found) do
    local name, peak = plot_points.name(entry.point, { axis }), plot_points.peak_bytes(entry.point) or 0
    if not best[name] then order[#order + 1] = name end
    if not best[name] or peak > best[name].peak then best[name] = { peak = peak, entry = entry } end
  end
  return lists.map(order, function(name) return best[name].entry end)
end

local function totals_panel(found, axes, per_ms, factor)
  local series = lists.map(found, function(entry, i)
    local line = total_line(entry.timeline, per_ms, factor)
    line.name, line.color = plot_points.name(entry.point, axes), i - 1
    return line
  end)
  return { kind = "lines", series = series, title = "" }
end

return { memory_timeline = function(results)
  local axes, found, largest, longest = plot_points.other_axes(results), {}, 0, 0
  local missing = {}
  for _, point in ipairs(results.points) do
    local timeline = timeline_of(point)
    if timeline then
      found[#found + 1] = { point = point, timeline = timeline }
      for _, bytes in ipairs(timeline.total) do largest = math.max(largest, plot_points.number(bytes) or 0) end
      longest = math.max(longest, timeline.ms[#timeline.ms])
    else
      local why = point.status == "ok" and "no timeline" or tostring(point.status)
      missing[#missing + 1] = ("%s: %s"):format(plot_points.name(point, axes), why)
    end
  end
  if #found == 0 then return nil, "needs points with status ok and a timeline of memory (profile = phases)" end
  local notes = { #missing > 0 and "Not drawn: " .. table.concat(missing, "; ") .. "." or nil }
  if tostring(results.points[1].options.device):match("^cuda") then
    notes[#notes + 1] = "Time is the host's: when the work was asked for, which the GPU does a little later."
  end
  if #found > most_panels then
    local all = #found
    found = largest_of_each(results, found)
    if #found < all then notes[#notes + 1] = ("Of %d points, the one of each kind that needs most."):format(all) end
  end
  local unit, factor = plot_spec.memory_unit(largest)
  local time_unit, per_ms = plot_spec.time_unit(longest)
  local panels, several = {}, is_of_several_steps(found)
  if #found > most_panels then
    panels[1] = totals_panel(found, axes, per_ms, factor)
  else
    for _, entry in ipairs(found) do
      panels[#panels + 1] = { kind = "stacked_area", title = plot_points.name(entry.point, axes),
        series = owner_series(entry.timeline, per_ms, factor), bands = bands_of(entry.timeline, per_ms) }
    end
  end
  for _, panel in ipairs(panels) do
    panel.x, panel.y = { label = several and "time" or "time in the step", unit = time_unit }, { label = "memory", unit = unit }
    if #panels > 1 then panel.y.min, panel.y.max = 0, largest * factor * 1.04 end
  end
  return plot_spec.spec(several and "Memory through steps in a row" or "Memory through a step", results, panels, {
    columns = #panels > 1 and 2 or nil, width = #panels == 1 and 1000 or 1300,
    height = #panels == 1 and 560 or 90 + 360 * math.ceil(#panels / 2),
    note = #notes > 0 and table.concat(notes, " ") or nil })
end }
