--- Plot specs as files: PNG by the viewer, SVG and PDF by this library.
local documents = require "moonshard.pdf.document"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local pages = require "moonshard.svg.page"
local shell = require "moonshard.shell"

local M = { formats = { "png", "svg", "pdf" } }

--- "1200x600" -> 1200, 600.
-- @tparam string where opens the message, e.g. "runs:plot"
-- @tparam number level of the caller, as for error()
function M.read_size(where, text, level)
  local width, height = tostring(text):match("^(%d+)x(%d+)$")
  width, height = tonumber(width), tonumber(height)
  if width and width >= 64 and width <= 16384 and height >= 64 and height <= 16384 then return width, height end
  error(("%s: option 'size': expected WIDTHxHEIGHT from 64x64 to 16384x16384, got '%s'; e.g. 1200x600"):format(where, tostring(text)),
    level + 1)
end

--- Raises unless a word is a format.
function M.check_format(where, word, level)
  if lists.contains(M.formats, word) then return word end
  error(("%s: expected a figure as png, svg or pdf, got '%s'%s"):format(where, tostring(word), guard.hint(tostring(word), M.formats)),
    level + 1)
end

--- Has the viewer draw specs as PNG.
-- @tparam {table,...} jobs each { spec = path of a plot spec, out = path of the picture }
-- @tparam table request scale, theme
-- @treturn boolean whether they were drawn
-- @treturn string why not
function M.draw_png(jobs, request)
  local viewer = native.launch.program("moonshard-view")
  if not native.launch.exists(viewer) then
    return false, "moonshard-view is not built (-DMOONSHARD_VIEWER=ON)"
  end
  local words = { viewer }
  for _, job in ipairs(jobs) do lists.extend(words, { "--render", job.spec, "-o", job.out }) end
  for _, flag in ipairs { "scale", "theme" } do
    if request[flag] then lists.extend(words, { "--" .. flag, tostring(request[flag]) }) end
  end
  local log = jobs[1].out .. ".log"
  local said, good, ended = shell.run(words, log)
  os.remove(log)
  return good, shell.last_words(said, ended)
end

--- Writes a spec as SVG or PDF.
function M.draw_vectors(spec, path, format, theme)
  local page = pages.new(spec, theme)
  native.files.write(path, format == "pdf" and documents.of_page(page) or pages.svg(page))
end

return M
