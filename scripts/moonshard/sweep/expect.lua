--- Claims about a sweep's results, checked against its figures: confirmed, refuted, undecided
-- (noise hides the answer) or not measured.
local blame = require "moonshard.sweep.blame"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local M = {}

--- Raises unless every claim has a text and a check.
function M.check(list)
  for i, item in ipairs(list) do
    local wrong, got
    if type(item) ~= "table" then
      wrong, got = "a table { claim, check }", item
    elseif type(item.claim) ~= "string" then
      wrong, got = "a claim (text)", item.claim
    elseif type(item.check) ~= "function" then
      wrong, got = "a check (function)", item.check
    end
    if wrong then blame("ms.sweep: expect %d: expected %s, got %s", i, wrong, tostring(got)) end
  end
  for key in pairs(list) do
    if type(key) ~= "number" then blame("ms.sweep: expect: expected a list of { claim, check }, got the key '%s'", tostring(key)) end
  end
end

local function verdict_of(holds)
  if holds == nil then return "not measured" end
  if holds == "undecided" then return "undecided" end
  return holds and "confirmed" or "refuted"
end

--- Runs every check, which returns true, false, "undecided" or nil, and figures. One that raises an error
-- counts as not measured: a typo in a claim must not lose the results.
-- @tparam {table,...} list of { claim, check }
-- @treturn {table,...} list of { claim, verdict, figures }
function M.judge(list, results)
  return lists.map(list, function(item)
    local ok, holds, figures = pcall(item.check, results)
    if not ok then holds, figures = nil, "the check raised an error: " .. tostring(holds) end
    return { claim = item.claim, figures = figures and tostring(figures) or "", verdict = verdict_of(holds) }
  end)
end

--- The verdicts as text and as Markdown.
function M.describe(verdicts)
  local rows, count = {}, { confirmed = 0, refuted = 0, undecided = 0, ["not measured"] = 0 }
  local lines = {}
  for i, item in ipairs(verdicts) do
    count[item.verdict] = count[item.verdict] + 1
    lines[i] = ("  %-12s  %s%s"):format(item.verdict, item.claim, item.figures ~= "" and "\n                " .. item.figures or "")
    rows[i] = { item.verdict, item.claim, item.figures }
  end
  local head = ("Claims: %d confirmed, %d refuted, %d undecided, %d not measured"):format(count.confirmed, count.refuted,
    count.undecided, count["not measured"])
  return head .. "\n" .. table.concat(lines, "\n"), "## " .. head .. "\n\n" .. text_table.markdown({ "verdict", "claim", "figures" }, rows)
end

--- Writes expect.json.
function M.write(folder, verdicts)
  native.records.write_file(folder, "expect.json", native.records.to_json { schema_version = 1, claims = verdicts })
end

return M
