--- ms.fields and docs/records.md say what the schema says, and every field has a reader.
local support = require "tests.support.support"
local ms = require "moonshard"
local page = require("moonshard.record_fields").page

local function sources(folders)
  local pipe = assert(io.popen(("cd %s && find %s -name '*.lua' -o -name '*.cpp' -o -name '*.h' | sort"):format(
    support.shell_quoted(support.root()), folders)))
  local list = {}
  for path in pipe:lines() do list[#list + 1] = { path = path, text = support.read(support.root() .. "/" .. path) } end
  pipe:close()
  return list
end

describe("fields of a record", function()
  it("are explained by docs/records.md, word for word", function()
    assert.are.equal(page(), support.read(support.root() .. "/docs/records.md"))
  end)

  it("can be listed at the prompt", function()
    local privacy = ms.fields "privacy."
    assert.is_true(#privacy > 15)
    for _, field in ipairs(privacy) do assert.is_truthy(field.path:find("privacy.", 1, true)) end
    assert.is_truthy(tostring(privacy):find("privacy.epsilon", 1, true))
  end)

  it("each have a reader: a panel, an analysis, a script or the program's own output", function()
    -- The schema, its visitors and those who fill it in are no readers.
    local readers = sources "scripts viewer/panels viewer/data runtime/analysis bindings/host"
    local unread = {}
    local details = support.read(support.root() .. "/viewer/panels/details.cpp")
    local shows_ranks = details:find("numbers_of(sharding.held)", 1, true) ~= nil
    for _, field in ipairs(ms.fields()) do
      -- Metrics are columns of the run table and lines of the details, whatever their names are.
      -- So are the bytes that a rank holds: lines of the details by their own names.
      local is_shown = field.path:find("^metrics%.") ~= nil or (field.path:find("^sharding%.%a+_[%a_]+$") ~= nil and shows_ranks)
      for _, source in ipairs(readers) do
        if is_shown then break end
        is_shown = source.text:find("[%.>]" .. field.key .. "%f[%W_]") ~= nil or source.text:find('"' .. field.key .. '"', 1, true) ~= nil
      end
      if not is_shown then unread[#unread + 1] = field.path end
    end
    assert.are.same({}, unread)
  end)

  it("are all that scripts and panels ask for among the metrics", function()
    local known = {}
    for _, field in ipairs(ms.fields "metrics.") do known[field.key] = true end
    local asked = {}
    for _, source in ipairs(sources "scripts viewer") do
      for key in source.text:gmatch("[^%w_]metrics%.([%a_]+)") do
        local is_method = source.path:match("%.cpp$") or source.path:match("%.h$")
        if not known[key] and not is_method then asked[#asked + 1] = source.path .. ": " .. key end
      end
      for key in source.text:gmatch('metric%([%w_%.%->]+, "([%w_]+)"') do
        if not known[key] then asked[#asked + 1] = source.path .. ": " .. key end
      end
    end
    assert.are.same({}, asked)
  end)
end)
