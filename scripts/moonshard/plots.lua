--- Makes plot specs from results (scripts/moonshard/plot) and has them drawn.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_files = require "moonshard.plot_files"

local M = {}

-- A function of results and options for each figure.
local makers = {}
for _, file in ipairs { "bars", "gpu_utilization_heatmap", "marks", "memory_timeline", "scaling", "stacks" } do
  makers = lists.merged(makers, require("moonshard.plot." .. file))
end

--- All figures, in the order they are drawn.
M.figures = {
  "memory_comparison", "time_comparison", "memory_vs_time_tradeoff", "overhead_analysis",
  "scaling", "bottleneck", "layer_norm_times", "before_after",
  "throughput_vs_batch", "memory_vs_batch", "communication_comparison", "gpu_utilization_heatmap", "overhead_breakdown",
  "stage_memory", "memory_breakdown_comparison", "memory_timeline", "performance_tradeoff", "phases", "own_metrics",
}

-- Drawn when asked for by name only: in most folders they would repeat another figure.
M.only_by_name = { before_after = true }

--- Raises unless a name is a figure; `level` as in error, `where` opens the message.
function M.check_name(name, where, level)
  if lists.contains(M.figures, name) then return end
  error(("%s: expected 'all' or one of %s, got '%s'%s"):format(where, table.concat(M.figures, ", "), tostring(name),
    guard.hint(tostring(name), M.figures)), level and level + 1 or 0)
end

--- The formats of a request: a word, several with commas, or a list.
local function read_formats(given, level)
  local words = type(given) == "table" and given or lists.matches(given or "png", "[^,%s]+")
  local formats = lists.unique(lists.map(words, function(word)
    local format = plot_files.check_format("runs:plot: option 'format'", word, level + 4)
    return format
  end))
  return #formats > 0 and formats or { "png" }
end

--- What a call asks for: a name, "all", or a table of names with out, size, scale, theme, format.
local function read_request(what, level)
  local given, names, named = type(what) == "table" and what or { what }, {}, {}
  for key, value in pairs(given) do
    if type(key) ~= "number" then named[key] = value end
  end
  local request = guard.check("runs:plot", named, { "out", "size", "scale", "theme", "format" }, level + 1)
  for key, value in pairs(request) do
    local wanted = key == "scale" and "number" or "string"
    if type(value) ~= wanted and not (key == "format" and type(value) == "table") then
      error(("runs:plot: option '%s': expected a %s, got %s"):format(key, wanted, tostring(value)), level + 1)
    end
  end
  if request.theme and request.theme ~= "light" and request.theme ~= "dark" then
    error(("runs:plot: option 'theme': expected light or dark, got '%s'"):format(request.theme), level + 1)
  end
  request.formats = read_formats(request.format, level)
  request.all = #given == 0
  for _, name in ipairs(given) do
    if name == "all" then
      request.all = true
    else
      M.check_name(name, "runs:plot", level + 1)
      names[#names + 1] = name
    end
  end
  request.names = request.all and M.figures or names
  return request
end

--- Draws specs that lie in a folder, in all formats of a request.
-- @treturn {string,...} paths of the files; of the specs of those that could not be drawn
local function draw_all(folder, names, specs, request)
  local paths, jobs = {}, {}
  local function path_of(name, ending) return ("%s/%s.%s"):format(folder, name, ending) end
  for i, name in ipairs(names) do
    for _, format in ipairs(request.formats or { "png" }) do
      paths[#paths + 1] = path_of(name, format)
      if format == "png" then
        jobs[#jobs + 1] = { spec = path_of(name, "plot.json"), out = paths[#paths], place = #paths }
      else
        plot_files.draw_vectors(specs[i], paths[#paths], format, request.theme)
      end
    end
  end
  if #jobs == 0 then return paths end
  local drawn, reason = plot_files.draw_png(jobs, request)
  if drawn then return paths end
  print(("plot: the %s written, but not drawn: %s"):format(#jobs > 1 and "specs are" or "spec is", reason))
  for _, job in ipairs(jobs) do paths[job.place] = job.spec end
  return paths
end

--- The spec of one figure, without drawing it.
-- @tparam[opt] table options what the figure takes: series, axis, baseline, top
-- @treturn table spec; nil where the records lack what it needs
-- @treturn string what they lack
function M.spec(results, figure, options)
  M.check_name(figure, "plots.spec", 2)
  if #results.points == 0 then return nil, "needs points with status ok" end
  return makers[figure](results, options or {})
end

--- Writes a spec; into a run folder by way of its reader, which refuses what cannot be drawn.
local function write_spec(results, folder, figure, spec)
  if folder == results.path .. "/visualizations" and native.launch.exists(results.path .. "/sweep.json") then
    native.records.write_plot(native.records.open(results.path), figure, spec)
  else
    native.files.write(("%s/%s.plot.json"):format(folder, figure), native.records.to_json(spec))
  end
end

--- Draws one spec that belongs to no run folder.
-- @tparam string folder for the spec and its picture
-- @tparam string name of the files
-- @tparam table request size, scale, theme, format
-- @treturn {string,...} paths of the pictures; of the spec where nothing can draw it
function M.draw_spec(folder, name, spec, request)
  if request.size then spec.width, spec.height = plot_files.read_size("runs:plot", request.size, 3) end
  native.files.write(("%s/%s.plot.json"):format(folder, name), native.records.to_json(spec))
  return draw_all(folder, { name }, { spec }, lists.merged(request, { formats = read_formats(request.format, 3) }))
end

--- Makes figures of a run folder. One figure that cannot be drawn is an error, some of several a printed line, and of
-- "all" those are made that the records allow.
-- @tparam string|table what a figure, "all", or { names…, out = folder, size = "WxH", scale = 1…4, theme = "light"|"dark",
-- format = "png"|"svg"|"pdf" or a list of them }
-- @treturn {string,...} paths of what was made
-- @treturn {string,...} what could not be made, and why
function M.draw(results, what)
  local request = read_request(what, 3)
  local folder = request.out or results.path .. "/visualizations"
  local width, height
  if request.size then width, height = plot_files.read_size("runs:plot", request.size, 3) end
  local made, refused, specs = {}, {}, {}
  for _, figure in ipairs(request.names) do
    if not (request.all and M.only_by_name[figure]) then
      local spec, reason = M.spec(results, figure)
      if spec then
        spec.width, spec.height = width or spec.width, height or spec.height
        write_spec(results, folder, figure, spec)
        made[#made + 1], specs[#specs + 1] = figure, spec
      elseif not request.all then
        refused[#refused + 1] = ("'%s' %s"):format(figure, reason)
      end
    end
  end
  if #refused == 1 and #request.names == 1 then error("runs:plot: " .. refused[1], 3) end
  for _, line in ipairs(refused) do print("plot: not drawn: " .. line) end
  if #made == 0 then return made, refused end
  return draw_all(folder, made, specs, request), refused
end

return M
