--- Makes plot specs from results (scripts/plot, one file per figure) and has the viewer draw them.
local guard = require "moonshard.options_guard"
local native = require "moonshard.native"

local M = {}

--- All figures, in the order they are drawn.
M.figures = { "memory_comparison", "time_comparison", "memory_vs_time_tradeoff", "overhead_analysis" }

local function chosen_figures(name)
  if name == "all" then return M.figures end
  for _, figure in ipairs(M.figures) do
    if figure == name then return { name } end
  end
  local near = guard.nearest(tostring(name), M.figures)
  error(("runs:plot: expected 'all' or one of %s, got '%s'%s"):format(table.concat(M.figures, ", "), tostring(name),
    near and ("; did you mean '%s'?"):format(near) or ""), 4)
end

--- Draws specs that lie in a folder's visualizations.
-- @treturn boolean whether PNG files were made
-- @treturn string why not
local function render(path, names)
  local viewer = native.launch.program("moonshard-view")
  if not native.launch.exists(viewer) then
    return false, "moonshard-view is not built (-DMOONSHARD_VIEWER=ON)"
  end
  local folder = path .. "/visualizations"
  local words = { viewer }
  for _, name in ipairs(names) do
    words[#words + 1] = "--render"
    words[#words + 1] = ("%s/%s.plot.json"):format(folder, name)
  end
  words[#words + 1] = "--out-dir"
  words[#words + 1] = folder
  local log = folder .. "/render.log"
  os.remove(log)
  local ended = native.launch.run(words, log)
  local file = io.open(log, "r")
  local said = file and file:read("*a") or ""
  if file then file:close() end
  if ended.exit_code ~= 0 or ended.signal ~= 0 then
    return false, said:match("([^\n]+)%s*$") or ended.text
  end
  os.remove(log)
  return true
end

--- Makes the figures of a run folder.
-- @tparam Runs results
-- @tparam string name a figure or "all"
-- @treturn {string,...} paths of what was made
function M.draw(results, name)
  local folder = native.records.open(results.path)
  local made = {}
  for _, figure in ipairs(chosen_figures(name)) do
    local spec = require("plot." .. figure)(results)
    if spec then
      native.records.write_plot(folder, figure, spec)
      made[#made + 1] = figure
    elseif name ~= "all" then
      error(("runs:plot: '%s' needs points with status ok and a baseline, got none"):format(figure), 3)
    end
  end
  if #made == 0 then return made end
  local drawn, reason = render(results.path, made)
  if not drawn then print(("plot: the specs are written, but not drawn: %s"):format(reason)) end
  local paths = {}
  for i, figure in ipairs(made) do
    paths[i] = ("%s/visualizations/%s%s"):format(results.path, figure, drawn and ".png" or ".plot.json")
  end
  return paths
end

return M
