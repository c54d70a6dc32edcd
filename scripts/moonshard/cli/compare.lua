--- moonshard compare DIR|RESULT.json… : only what differs, then figures with ratios.
local analyze = require "moonshard.analyze"
local arguments = require "moonshard.arguments"
local native = require "moonshard.native"
local usage = require "moonshard.usage"

local flags = {
  { name = "all", kind = "boolean", doc = "also the options in which results agree, and all figures" },
  { name = "json", kind = "boolean", doc = "the same as JSON" },
  { name = "metrics", kind = "text", list = true, doc = "these figures instead of the usual ones" },
  { name = "only", kind = "text", list = true, doc = "KEY=GLOB: points whose option matches" },
}

--- Words that name folders and files come first or between flags; a list flag takes what contains no file.
local function split(words)
  local paths, rest, i = {}, {}, 1
  while i <= #words do
    local word = words[i]
    if word:sub(1, 2) ~= "--" then
      paths[#paths + 1] = word
    else
      rest[#rest + 1] = word
      -- The value of --metrics and --only is one word; commas make several of it.
      if (word == "--metrics" or word == "--only") and words[i + 1] then
        i = i + 1
        for part in words[i]:gmatch("[^,]+") do rest[#rest + 1] = part end
      end
    end
    i = i + 1
  end
  return paths, rest
end

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
  local paths, rest = split { ... }
  local given = arguments.parse("compare", rest, flags)
  if #paths == 0 then usage.fail("compare: expected run folders or result files, got nothing; moonshard compare --help") end
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
