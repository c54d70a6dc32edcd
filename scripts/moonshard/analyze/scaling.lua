--- How time, memory and communication grow with an axis (the number of tokens T, if nothing else is said): tables of the
-- fits that runtime/analysis/scaling.h makes; docs/analysis.md explains them.
local guard = require "moonshard.options_guard"
local lazy_points = require "moonshard.lazy_points"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local M = {}

--- An exponent is shown from this many points on.
M.least_points = 3

--- What can be fitted: name and unit.
M.quantities = native.analysis.quantities

--- Figures of all quantities of a point, by name; nil where one was not measured.
M.figures = native.analysis.figures

--- Fits figures against a size.
-- @tparam {number,...} x sizes, all positive, at least two different ones
-- @tparam {number,...} y figures; points that are not positive take no part
-- @treturn table exponent, standard_error (nil below 3 points), factor (y = factor x^exponent), last_exponent (of the two
-- largest), linear and quadratic ({ offset, slope, error }: y = offset + slope x or x^2, error relative), verdict
-- ("O(1)", "O(T)", "O(T^2)", "between", "undecided" below three points and where noise hides it), better ("a + b T",
-- "a + b T^2"), count; or nil
function M.fit(x, y) return native.analysis.fit(x, y) end

--- Why a fit of two points has no exponent; nil where there are enough.
function M.missing_exponent(count)
  if count >= M.least_points then return nil end
  return ("%d points, no exponent: a power law goes through any two points, so three or more are needed"):format(count)
end

--- Fits every quantity of every family of points that agree in all axes but one.
-- @tparam Runs results
-- @tparam[opt] table options axis ("seq_length")
-- @treturn Table prints as a table; `fits[family][quantity]` are the fits themselves
-- @usage print(ms.analyze.scaling(ms.load("results/run_…")))
function M.analyze(results, options)
  options = guard.check("ms.analyze.scaling", options, { "axis" }, 2)
  local axis = options.axis or "seq_length"
  local columns = { "", "of", "at " .. axis, "", "exponent", "+-", "a + b T", "a + b T^2", "verdict" }
  local rows, fits, modes, short = {}, {}, {}, 0
  for _, family in ipairs(native.analysis.growth(lazy_points.plain(results), axis)) do
    fits[family.name], modes[family.name] = {}, family.mode
    for _, item in ipairs(family.fits) do
      local fit = item.fit
      fits[family.name][item.quantity] = fit
      local is_enough = fit.count >= M.least_points
      short = short + (is_enough and 0 or 1)
      local function error_of(which) return is_enough and ("%.1f %% off"):format(100 * which.error) or nil end
      rows[#rows + 1] = { family.name, item.quantity, ("%g … %g"):format(fit.x[1], fit.x[fit.count]),
        ("%.3g … %.3g %s"):format(fit.y[1], fit.y[fit.count], item.unit), is_enough and ("%.2f"):format(fit.exponent) or nil,
        fit.standard_error and ("%.2f"):format(fit.standard_error), error_of(fit.linear), error_of(fit.quadratic), fit.verdict }
    end
  end
  return text_table.new {
    title = "Growth with " .. axis .. ": y ~ T^p of the fastest samples (norms and communication: of the detailed step); "
      .. "which line with a fixed cost fits better",
    columns = columns, rows = rows, fits = fits, modes = modes, axis = axis,
    notes = short > 0 and { M.missing_exponent(2) .. "." } or nil }
end

return M
