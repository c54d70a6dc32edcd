--- Errors that name the user's line: the nearest one on the stack that is not of the Lua library.
-- @tparam string text a format, as string.format takes it
return function(text, ...)
  text = select("#", ...) > 0 and text:format(...) or text
  for level = 2, 50 do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.currentline > 0 and not info.source:find("scripts/moonshard/", 1, true) then
      error(("%s:%d: %s"):format(info.short_src, info.currentline, text), 0)
    end
  end
  error(text, 0)
end
