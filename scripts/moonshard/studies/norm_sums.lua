--- The three questions of document 001 about ranks that disagree, answered from records (norm_reduce = sum) and by moonshard verify:
-- squared norms before the sum must differ between ranks, be equal afterwards, and give the norms of one process.
local lists = require "moonshard.lists"
local plot_points = require "moonshard.plot_points"

local M = {}

local function equal(a, b)
  if #a ~= #b or #a == 0 then return false end
  for i, value in ipairs(a) do
    if value ~= b[i] then return false end
  end
  return true
end

local function shown(numbers)
  local parts = lists.map(numbers, function(number) return ("%.6g"):format(number) end)
  return table.concat(parts, " ", 1, math.min(#parts, 8)) .. (#parts > 8 and " …" or "")
end

--- Answers for one point; nil where it has no sums of norms.
-- @treturn table before (different on every rank), after (the same on all), is_sum (after is the sum of before), rows
function M.judge(point)
  local rows = lists.select(plot_points.part(point, "norm_sum"), function(row)
    return type(row) == "table" and type(row.before) == "table" and type(row.after) == "table"
  end)
  if #rows == 0 then return nil end
  local answer = { rows = rows, before = true, after = true, is_sum = true }
  for a = 1, #rows do
    for b = a + 1, #rows do
      if equal(rows[a].before, rows[b].before) then answer.before = false end
      if not equal(rows[a].after, rows[b].after) then answer.after = false end
    end
  end
  for i = 1, #rows[1].before do
    local sum = 0
    for _, row in ipairs(rows) do sum = sum + (row.before[i] or 0) end
    local found = rows[1].after[i] or 0
    if math.abs(found - sum) > 1e-6 * math.max(math.abs(sum), 1e-300) then answer.is_sum = false end
  end
  return answer
end

local function answers_of(answer, is_modelled)
  if is_modelled then return { "one rank of a modelled world: there is no other rank to compare with" } end
  return {
    "before the sum norms differ between ranks: " .. (answer.before and "yes"
      or "NO: identical norms: these ranks train the same samples, or layers are not sharded as they should be"),
    "after the sum they are the same on all ranks: " .. (answer.after and "yes" or "NO: the all-reduce does not synchronise the ranks"),
    "and the sum of what each rank had: " .. (answer.is_sum and "yes" or "NO: the reduction adds something else up"),
  }
end

--- The section of the report; nil where nothing is known of norms on several ranks.
-- @tparam Runs results
-- @tparam {string,...} verified what moonshard verify says of the same questions
function M.describe(results, verified)
  local lines = { "Norms before and after ranks put them together" }
  local largest, answer, longest = nil, nil, -1
  for _, point in ipairs(results:select("ok")) do
    local found = M.judge(point)
    local length = plot_points.number(point.options.seq_length) or 0
    if found and length > longest then largest, answer, longest = point, found, length end
  end
  if largest then
    lines[#lines + 1] = ("%s, squared norms of the watched step:"):format(plot_points.name(largest, plot_points.other_axes(results), true))
    for _, row in ipairs(answer.rows) do
      lines[#lines + 1] = ("  rank %d before %s"):format(plot_points.number(row.rank) or 0, shown(row.before))
      lines[#lines + 1] = ("  rank %d after  %s"):format(plot_points.number(row.rank) or 0, shown(row.after))
    end
    for _, line in ipairs(answers_of(answer, plot_points.modelled_ranks(largest))) do lines[#lines + 1] = "  " .. line end
  end
  for _, line in ipairs(verified or {}) do lines[#lines + 1] = "  verify, " .. line end
  return #lines > 1 and table.concat(lines, "\n") or nil
end

return M
