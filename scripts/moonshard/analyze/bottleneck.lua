--- What bounds a step: cause, evidence and advice, as a report. Rules and thresholds are those of
-- runtime/analysis/bottleneck.h.
local guard = require "moonshard.options_guard"
local lazy_points = require "moonshard.lazy_points"
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}

--- Where a share counts as high, by name; percent of the step unless the name says otherwise.
M.thresholds = native.analysis.thresholds

local Report = {}
Report.__index = Report

--- Cause, evidence of each point, advice; the causes with the most evidence first.
function Report:__tostring()
  local lines = { "Bottlenecks: cause, evidence, advice" }
  for _, finding in ipairs(self.findings) do
    lines[#lines + 1] = "\ncause     " .. finding.cause
    for i, item in ipairs(finding.evidence) do
      lines[#lines + 1] = (i == 1 and "evidence  " or "          ") .. item.point .. ": " .. item.text
    end
    for i, text in ipairs(finding.advice) do lines[#lines + 1] = (i == 1 and "advice    " or "          ") .. text end
  end
  if #self.findings == 0 then lines[#lines + 1] = "\nnothing stands out: no share of any step is above its threshold" end
  for _, note in ipairs(self.notes) do lines[#lines + 1] = "\nnote      " .. note end
  return table.concat(lines, "\n")
end

--- Applies the rules to every point with status ok.
-- @tparam Runs results
-- @tparam[opt] table options thresholds: names of M.thresholds with other values
-- @treturn Report findings (name, cause, evidence = { point, text }, advice), notes; prints as a report
function M.analyze(results, options)
  options = guard.check("ms.analyze.bottleneck", options, { "thresholds" }, 2)
  local own = guard.check("ms.analyze.bottleneck: thresholds", options.thresholds, lists.keys(M.thresholds), 2)
  return setmetatable(native.analysis.bottlenecks(lazy_points.plain(results), lists.merged(M.thresholds, own)), Report)
end

return M
