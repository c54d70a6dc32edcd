--- moonshard compare: only what differs between results, then their figures with ratios.
local analyze = require "moonshard.analyze"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local usage = require "moonshard.usage"

local function as_json(comparison)
  return native.records.to_json { tables = lists.map(comparison.tables, function(each)
    local rows = lists.map(each.rows, function(row)
      return lists.map(each.columns, function(_, c) return row[c] == nil and native.null or row[c] end)
    end)
    return { title = each.title, columns = each.columns, rows = rows, notes = each.notes }
  end) }
end

local function compare(given)
  if not given.paths then usage.fail("compare: expected run folders or result files, got nothing; moonshard compare --help") end
  local comparison = usage.attempt("ms%.compare:", "compare:", analyze.compare, given.paths,
    { all = given.all, metrics = given.metrics, only = given.only or {} })
  io.write(given.json and as_json(comparison) or tostring(comparison) .. "\n")
  return 0
end

return {
  usage = "DIR|RESULT.json… [--all] [--json] [--metrics a,b,…] [--only KEY=GLOB]",
  about = "Shows the options in which results differ, then their figures side by side, with the ratio to the first.\n"
    .. "Two or more run folders: points that agree in the axes stand beside each other. One folder: its points.",
  flags = {
    { name = "all", kind = "boolean", doc = "also the options in which they agree, and all figures" },
    { name = "metrics", kind = "text", list = true, commas = true, value = "a,b", doc = "these figures instead of the usual ones" },
    { name = "only", kind = "pair", list = true, commas = true, value = "KEY=GLOB", doc = "points whose option matches" },
    { name = "json", kind = "boolean", doc = "the same as JSON" },
  },
  positional = { name = "paths", kind = "text", list = true },
  takes_files = true,
  run = compare,
}
