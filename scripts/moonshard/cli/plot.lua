--- moonshard plot: figures of a run folder as PNG, SVG or PDF, with their plot specs.
local lists = require "moonshard.lists"
local plot_files = require "moonshard.plot_files"
local plots = require "moonshard.plots"
local runs = require "moonshard.runs"
local timeline = require "moonshard.snapshot.timeline"
local usage = require "moonshard.usage"

local function request_of(given)
  local rest = given.words or {}
  local path = table.remove(rest, 1)
  if not path then usage.fail("plot: expected a run folder, got nothing; give one like results/run_YYYYMMDD_HHMMSS") end
  for _, name in ipairs(rest) do
    if name ~= "all" then
      local ok, message = pcall(plots.check_name, name, "plot")
      if not ok then usage.fail("%s", message) end
    end
  end
  if given.scale and (given.scale < 1 or given.scale > 4) then
    usage.fail("plot: option '--scale': expected 1 to 4, got %s", tostring(given.scale))
  end
  for _, word in ipairs(lists.matches(given.format or "png", "[^,]+")) do
    if not lists.contains(plot_files.formats, word) then
      usage.fail("plot: option '--format': expected png, svg, pdf or several with commas, got '%s'", given.format)
    end
  end
  local request = { out = given.out, size = given.size, scale = given.scale, theme = given.theme, format = given.format }
  return path, lists.extend(request, #rest > 0 and rest or { "all" })
end

--- A memory snapshot of PyTorch, whoever wrote it: memory over time by the places that allocate.
local function draw_snapshot(path, request)
  local ok, snapshot = pcall(timeline.load, path)
  if not ok then
    io.stderr:write("moonshard: plot: ", tostring(snapshot), "\n")
    return 1
  end
  local name = (path:match("([^/]+)%.pickle$") or "snapshot") .. "_timeline"
  local folder = request.out or path:match("^(.*)/[^/]+$") or "."
  for _, made in ipairs(plots.draw_spec(folder, name, timeline.spec(snapshot), request)) do print(made) end
  return 0
end

local function draw(given)
  local path, request = request_of(given)
  if path:match("%.pickle$") then return draw_snapshot(path, request) end
  local results = usage.attempt("ms%.load:", "plot:", runs.load, path)
  local drawn, paths, refused = pcall(plots.draw, results, request)
  if not drawn then
    io.stderr:write("moonshard: ", (tostring(paths):gsub("^.-runs:plot: ", "plot: ")), "\n")
    return tostring(paths):find("option 'size'", 1, true) and 2 or 1
  end
  if #paths == 0 and #refused == 0 then
    io.stderr:write(("moonshard: plot: no point in %s has status ok; nothing to draw\n"):format(path))
    return 1
  end
  for _, made in ipairs(paths) do print(made) end
  return #refused > 0 and 1 or 0
end

return {
  usage = "DIR|SNAPSHOT.pickle [FIGURE…] [--out DIR] [--size WxH] [--scale 1..4] [--theme light|dark] [--format png,svg,pdf]",
  about = "Draws figures of a run folder as PNG, SVG or PDF, with their plot specs; without names all that the records allow.\n"
    .. "A wrong name lists them; docs/plots.md says what each shows. Of a memory snapshot of PyTorch:\n"
    .. "memory over time, by the places in the program that allocate.",
  flags = {
    { name = "out", kind = "text", value = "DIR", doc = "folder for the pictures and their specs (DIR/visualizations)" },
    { name = "size", kind = "text", value = "WxH", doc = "at scale 1, instead of each figure's own" },
    { name = "scale", kind = "int", doc = "pixels per unit of size, 1 to 4 (2)" },
    { name = "theme", kind = "text", choices = { "light", "dark" }, doc = "light (paper, the default) or dark (screen)" },
    { name = "format", kind = "text", value = "LIST", doc = "png (the default), svg, pdf, or several with commas" },
  },
  positional = { name = "words", kind = "text", list = true },
  takes_files = true,
  run = draw,
}
