--- moonshard compare DIR|RESULT.json… : only what differs, then figures with ratios.
local analyze = require "moonshard.analyze"
local arguments = require "moonshard.arguments"
local native = require "moonshard.native"
local usage = require "moonshard.usage"

local flags = {
  { name = "all", kind = "boolean", doc = "also the options in which results agree, and all figures" },
  { name = "json", kind = "boolean", doc = "the same as JSON" },
  { name = "metrics", kind = "text", list = true, commas = true, doc = "these figures instead of the usual ones" },
  { name = "only", kind = "text", list = true, commas = true, doc = "KEY=GLOB: points whose option matches" },
}

local function as_json(comparison)
  local tables = {}
  for i, each in ipairs(comparison.tables) do tables[i] = { title = each.title, columns = each.columns, rows = each.rows } end
  for _, each in ipairs(tables) do
    for r, row in ipairs(each.rows) do
      local named = {}
      for c = 1, #each.columns do named[c] = row[c] == nil and native.null or row[c] end
      each.rows[r] = named
    end
  end
  return native.records.to_json { tables = tables }
end

return function(...)
  local given = arguments.parse("compare", { ... }, flags, { name = "paths", kind = "text", list = true })
  local paths = given.paths
  if not paths then usage.fail("compare: expected run folders or result files, got nothing; moonshard compare --help") end
  local only = {}
  for _, text in ipairs(given.only or {}) do
    local key, glob = text:match("^([^=]+)=(.*)$")
    if not key then usage.fail("compare: option '--only': expected KEY=GLOB, got '%s'", text) end
    only[(key:gsub("-", "_"))] = glob
  end
  local ok, comparison = pcall(analyze.compare, paths, { all = given.all, metrics = given.metrics, only = only })
  if not ok then
    io.stderr:write("moonshard: ", (usage.plain(comparison):gsub("^ms%.compare:", "compare:")), "\n")
    return 1
  end
  io.write(given.json and as_json(comparison) or tostring(comparison) .. "\n")
  return 0
end
