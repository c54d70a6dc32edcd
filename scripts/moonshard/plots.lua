--- Makes plot specs from results (scripts/moonshard/plot) and has the viewer draw them.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local shell = require "moonshard.shell"

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

--- What a call asks for: a name, "all", or a table of names with out, size, scale, theme.
local function read_request(what, level)
  local given, names, named = type(what) == "table" and what or { what }, {}, {}
  for key, value in pairs(given) do
    if type(key) ~= "number" then named[key] = value end
  end
  local request = guard.check("runs:plot", named, { "out", "size", "scale", "theme" }, level + 1)
  for key, value in pairs(request) do
    local wanted = key == "scale" and "number" or "string"
    if type(value) ~= wanted then
      error(("runs:plot: option '%s': expected a %s, got %s"):format(key, wanted, tostring(value)), level + 1)
    end
  end
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

--- "1200x600" -> 1200, 600.
local function read_size(text, level)
  local width, height = text:match("^(%d+)x(%d+)$")
  width, height = tonumber(width), tonumber(height)
  if width and width >= 64 and width <= 16384 and height >= 64 and height <= 16384 then return width, height end
  error(("runs:plot: option 'size': expected WIDTHxHEIGHT from 64x64 to 16384x16384, got '%s'; e.g. 1200x600"):format(text), level + 1)
end

--- Draws specs that lie in a folder.
-- @treturn boolean whether PNG files were made
-- @treturn string why not
local function render(folder, names, request)
  local viewer = native.launch.program("moonshard-view")
  if not native.launch.exists(viewer) then
    return false, "moonshard-view is not built (-DMOONSHARD_VIEWER=ON)"
  end
  local words = { viewer, "--out-dir", folder }
  for _, name in ipairs(names) do lists.extend(words, { "--render", ("%s/%s.plot.json"):format(folder, name) }) end
  for _, flag in ipairs { "scale", "theme" } do
    if request[flag] then lists.extend(words, { "--" .. flag, tostring(request[flag]) }) end
  end
  local log = folder .. "/render.log"
  local said, good, ended = shell.run(words, log)
  os.remove(log)
  return good, shell.last_words(said, ended)
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
-- @tparam table request size, scale, theme
-- @treturn string path of the PNG; of the spec where nothing can draw it
function M.draw_spec(folder, name, spec, request)
  if request.size then spec.width, spec.height = read_size(request.size, 3) end
  native.files.write(("%s/%s.plot.json"):format(folder, name), native.records.to_json(spec))
  local drawn, reason = render(folder, { name }, request)
  if not drawn then print(("plot: the spec is written, but not drawn: %s"):format(reason)) end
  return ("%s/%s%s"):format(folder, name, drawn and ".png" or ".plot.json")
end

--- Makes figures of a run folder. One figure that cannot be drawn is an error, some of several a printed line, and of
-- "all" those are made that the records allow.
-- @tparam string|table what a figure, "all", or { names…, out = folder, size = "WxH", scale = 1…4, theme = "light"|"dark" }
-- @treturn {string,...} paths of what was made
-- @treturn {string,...} what could not be made, and why
function M.draw(results, what)
  local request = read_request(what, 3)
  local folder = request.out or results.path .. "/visualizations"
  local width, height
  if request.size then width, height = read_size(request.size, 3) end
  local made, refused = {}, {}
  for _, figure in ipairs(request.names) do
    if not (request.all and M.only_by_name[figure]) then
      local spec, reason = M.spec(results, figure)
      if spec then
        spec.width, spec.height = width or spec.width, height or spec.height
        write_spec(results, folder, figure, spec)
        made[#made + 1] = figure
      elseif not request.all then
        refused[#refused + 1] = ("'%s' %s"):format(figure, reason)
      end
    end
  end
  if #refused == 1 and #request.names == 1 then error("runs:plot: " .. refused[1], 3) end
  for _, line in ipairs(refused) do print("plot: not drawn: " .. line) end
  if #made == 0 then return made, refused end
  local drawn, reason = render(folder, made, request)
  if not drawn then print(("plot: the specs are written, but not drawn: %s"):format(reason)) end
  local ending = drawn and ".png" or ".plot.json"
  return lists.map(made, function(figure) return ("%s/%s%s"):format(folder, figure, ending) end), refused
end

return M
