--- Figures at the prompt: pictures in the terminal where it says that it can show them (kitty's protocol, sixel), else the viewer's window
-- on request. A figure is a value that names PNG or SVG files: what runs:plot and ms.plot return.
local lists = require "moonshard.lists"

local M = {}

local MIME = { png = "image/png", svg = "image/svg+xml" }
-- Asks for kitty's graphics with a picture of one dot, then for the terminal's own attributes, which every terminal answers; 4 is sixel.
local QUERY = "\27_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\27\\\27[c"
local CHUNK = 4096

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local data = file:read("*a")
  file:close()
  return data
end

local function is_picture(value, others)
  local ending = type(value) == "string" and #value < 4096 and value:match("%.(%a+)$")
  if not ending or not (MIME[ending:lower()] or others and others[ending:lower()]) or value:find("[%z\n]") then return false end
  local file = io.open(value, "rb")
  if file then file:close() end
  return file ~= nil
end

--- The one file of an ms.plot figure to show: the same picture may be there in several formats.
local function shown_file(figure)
  for _, ending in ipairs { "png", "svg" } do
    for _, path in ipairs(figure) do
      if is_picture(path) and path:match("%.(%a+)$"):lower() == ending then return path end
    end
  end
end

local function is_figure(value)
  local meta = type(value) == "table" and debug.getmetatable(value)
  return type(meta) == "table" and rawget(meta, "__name") == "Figure"
end

--- Pictures that a value names.
-- @treturn {table,...} each { mime, path }; empty for any other value
function M.of(value)
  if is_figure(value) then value = shown_file(value) end
  local paths = type(value) == "table" and not debug.getmetatable(value) and #value > 0 and #value <= 100 and value or { value }
  for _, path in ipairs(paths) do
    if not is_picture(path) then return {} end
  end
  return lists.map(paths, function(path) return { mime = MIME[path:match("%.(%a+)$"):lower()], path = path } end)
end

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

--- Base64 of bytes.
function M.base64(data)
  local parts = {}
  local function digit(value)
    local at = value % 64 + 1
    return DIGITS:sub(at, at)
  end
  for at = 1, #data, 3 do
    local a, b, c = data:byte(at, at + 2)
    local bits = a * 65536 + (b or 0) * 256 + (c or 0)
    parts[#parts + 1] = digit(math.floor(bits / 262144)) .. digit(math.floor(bits / 4096))
      .. (b and digit(math.floor(bits / 64)) or "=") .. (c and digit(bits) or "=")
  end
  return table.concat(parts)
end

--- A PNG in kitty's protocol: chunks of base64, of which all but the last say that more follow.
function M.kitty(data)
  local encoded, parts = M.base64(data), {}
  for from = 1, #encoded, CHUNK do
    local is_last = from + CHUNK > #encoded
    local control = (from == 1 and "a=T,f=100,q=2," or "") .. "m=" .. (is_last and 0 or 1)
    parts[#parts + 1] = ("\27_G%s;%s\27\\"):format(control, encoded:sub(from, from + CHUNK - 1))
  end
  return table.concat(parts) .. "\n"
end

--- A PNG as sixels. Compiled, it takes a tenth of a second, else three: the prompt's JIT compiler is off, so that Ctrl-C works.
function M.sixel(data, columns, path)
  local was_on = jit.status()
  jit.on()
  local text, problem = require("moonshard.repl.sixel").of_png(data, columns)
  if not was_on then
    jit.off()
    jit.flush()
  end
  return text or ("%s: %s\n"):format(path, problem)
end

--- What the terminal can show: "kitty", "sixel" or "none". MOONSHARD_GRAPHICS says it without asking.
function M.ability(session)
  if session.graphics then return session.graphics end
  local chosen = os.getenv "MOONSHARD_GRAPHICS" or ""
  if chosen ~= "" then
    local is_known = chosen == "kitty" or chosen == "sixel" or chosen == "none"
    if not is_known then
      session:fail(("MOONSHARD_GRAPHICS: expected kitty, sixel or none, got '%s'; no figure is drawn"):format(chosen))
    end
    session.graphics = is_known and chosen or "none"
    return session.graphics
  end
  local answer = session.host.ask_terminal(QUERY, "c") or ""
  local attributes = answer:match("\27%[%?([%d;]+)c") or ""
  session.graphics = answer:find("_Gi=31;OK", 1, true) and "kitty" or (";" .. attributes .. ";"):find(";4;", 1, true) and "sixel" or "none"
  return session.graphics
end

--- Draws what a printed value names, where the terminal can; says once how to open it where it cannot.
function M.show(session, value)
  if not session.host.is_terminal() then return end
  local pictures = M.of(value)
  if #pictures == 0 then return end
  local ability, is_left = M.ability(session), false
  for _, picture in ipairs(pictures) do
    local data = picture.mime == "image/png" and ability ~= "none" and read(picture.path)
    if data and ability == "kitty" then
      session.host.out(M.kitty(data))
    elseif data and ability == "sixel" then
      session.host.out(M.sixel(data, session.host.width(), picture.path))
    else
      is_left = true
    end
  end
  session.last_picture = pictures[1].path
  if is_left and not session.has_hinted then
    session.has_hinted = true
    session.host.out(".open shows the first in a window, .open FILE another\n")
  end
end

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- Opens a picture in a window: the viewer for a figure that lies beside its spec, else the desktop's own program.
-- @treturn boolean whether something was started
-- @treturn string what was started, or why nothing could be
function M.open(path, launch)
  if not is_picture(path, { pdf = true }) then return false, ("expected a PNG, SVG or PDF file, got '%s'"):format(path) end
  local has_desktop = (os.getenv "DISPLAY" or "") ~= "" or (os.getenv "WAYLAND_DISPLAY" or "") ~= ""
  if not has_desktop then return false, ("no window system here; the file is %s"):format(path) end
  local run_folder = path:match("^(.*)/visualizations/[^/]+$")
  local viewer = launch and launch.program "moonshard-view"
  local command
  if run_folder and viewer and launch.exists(viewer) then
    command = quoted(viewer) .. " " .. quoted(run_folder)
  else
    command = "xdg-open " .. quoted(path)
  end
  os.execute(command .. " >/dev/null 2>&1 </dev/null &")
  return true, command
end

return M
