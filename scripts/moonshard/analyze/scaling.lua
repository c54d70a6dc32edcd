--- How time, memory and communication grow with an axis (the number of tokens T, if nothing else is said):
-- the exponent of y ~ T^p with its error, and whether a + b T or a + b T^2 explains the figures better. A fixed cost a
-- flattens the exponent at short T; the two fits with an offset see through that.
local guard = require "moonshard.options_guard"
local text_table = require "moonshard.text_table"

local M = {}

--- Below this exponent a quantity counts as constant.
M.constant_exponent = 0.25
--- A fit counts as the better one when its error is below this share of the other's.
M.better_by = 0.67
--- And only when it is itself no further off than this, or the exponent agrees: T^1.5 is nearer to T^2 than to T, and neither.
M.most_error = 0.15
--- Beyond both this standard error and most_error, figures are noise and nothing is decided.
M.most_standard_error = 0.15

--- Least squares of v = a + b u with weights; both kept from being negative, as costs are.
local function weighted_line(u, v, weight)
  local sw, su, sv, suu, suv = 0, 0, 0, 0, 0
  for i = 1, #u do
    local w = weight[i]
    sw, su, sv = sw + w, su + w * u[i], sv + w * v[i]
    suu, suv = suu + w * u[i] * u[i], suv + w * u[i] * v[i]
  end
  local determinant = sw * suu - su * su
  local a, b
  if determinant > 0 then
    b = (sw * suv - su * sv) / determinant
    a = (sv - b * su) / sw
  else
    a, b = sv / sw, 0
  end
  if a < 0 then a, b = 0, suv / suu end
  if b < 0 then a, b = sv / sw, 0 end
  return a, b
end

--- y = a + b x^power, by relative errors: a measurement's noise grows with it.
local function offset_fit(x, y, power)
  local u, weight = {}, {}
  for i = 1, #x do u[i], weight[i] = x[i] ^ power, 1 / (y[i] * y[i]) end
  local a, b = weighted_line(u, y, weight)
  local sum = 0
  for i = 1, #x do sum = sum + ((a + b * u[i] - y[i]) / y[i]) ^ 2 end
  return { offset = a, slope = b, power = power, error = math.sqrt(sum / #x) }
end

local function log_log(x, y)
  local n, su, sv, suu, suv = #x, 0, 0, 0, 0
  local u, v = {}, {}
  for i = 1, n do
    u[i], v[i] = math.log(x[i]), math.log(y[i])
    su, sv = su + u[i], sv + v[i]
  end
  local mean_u, mean_v = su / n, sv / n
  for i = 1, n do
    suu, suv = suu + (u[i] - mean_u) ^ 2, suv + (u[i] - mean_u) * (v[i] - mean_v)
  end
  local exponent = suv / suu
  local residuals = 0
  for i = 1, n do residuals = residuals + (v[i] - mean_v - exponent * (u[i] - mean_u)) ^ 2 end
  local standard_error = n > 2 and math.sqrt(residuals / (n - 2) / suu) or nil
  return exponent, standard_error, math.exp(mean_v - exponent * mean_u)
end

local function verdict_of(fit)
  local linear, quadratic = fit.linear.error, fit.quadratic.error
  if fit.exponent < M.constant_exponent then
    -- Constant as far as one can see: figures that jump about say nothing.
    return 2 * fit.standard_error <= M.constant_exponent and "O(1)" or "undecided"
  end
  -- Both fit to the last digit only when the points are too few to tell.
  if linear < 1e-9 and quadratic < 1e-9 then return "undecided" end
  local function agrees(off, power) return off <= M.most_error or math.abs(fit.exponent - power) <= 2 * fit.standard_error end
  if linear <= M.better_by * quadratic and agrees(linear, 1) then return "O(T)" end
  if quadratic <= M.better_by * linear and agrees(quadratic, 2) then return "O(T^2)" end
  if math.min(linear, quadratic) > M.most_error and fit.standard_error > M.most_standard_error then return "undecided" end
  return "between"
end

--- Fits figures against a size.
-- @tparam {number,...} x sizes, all positive, at least two different ones
-- @tparam {number,...} y figures; points that are not positive take no part
-- @treturn table exponent, standard_error (nil below 3 points), factor (y = factor x^exponent), last_exponent (of the two
-- largest), linear and quadratic ({ offset, slope, error }: y = offset + slope x or x^2, error relative), verdict
-- ("O(1)", "O(T)", "O(T^2)", "between", "undecided" below three points and where noise hides it), better ("a + b T",
-- "a + b T^2"), count; or nil
function M.fit(x, y)
  local points = {}
  for i = 1, #x do
    if type(y[i]) == "number" and y[i] > 0 and y[i] < math.huge and x[i] > 0 then points[#points + 1] = { x[i], y[i] } end
  end
  table.sort(points, function(a, b) return a[1] < b[1] end)
  local n = #points
  if n < 2 or points[1][1] == points[n][1] then return nil end
  local u, v = {}, {}
  for i, point in ipairs(points) do u[i], v[i] = point[1], point[2] end
  local fit = { count = n, x = u, y = v }
  fit.exponent, fit.standard_error, fit.factor = log_log(u, v)
  if u[n] > u[n - 1] then fit.last_exponent = math.log(v[n] / v[n - 1]) / math.log(u[n] / u[n - 1]) end
  fit.linear, fit.quadratic = offset_fit(u, v, 1), offset_fit(u, v, 2)
  fit.better = fit.linear.error <= fit.quadratic.error and "a + b T" or "a + b T^2"
  fit.verdict = n >= 3 and verdict_of(fit) or "undecided"
  return fit
end

--- The fastest sample of a phase: growth is a property of the work; what other programs and slower ranks add is not.
local function phase(name)
  return function(point)
    local phases = point.result.time and point.result.time.phases_ms
    return phases and phases[name] and (phases[name].min or phases[name].median)
  end
end

local function sum_of(list, key)
  local sum
  for _, item in ipairs(list or {}) do
    if type(item[key]) == "number" then sum = (sum or 0) + item[key] end
  end
  return sum
end

local function owner_at_peak(owner)
  return function(point)
    for _, row in ipairs(point.result.memory and point.result.memory.breakdown or {}) do
      if row.owner == owner then return row.bytes / 2 ^ 20 end
    end
  end
end

--- What can be fitted: name, unit, and how to read it from a point of a run folder (nil where it was not measured).
M.quantities = {
  { name = "forward", unit = "ms", read = phase "forward" },
  { name = "backward", unit = "ms", read = phase "backward" },
  { name = "second backward", unit = "ms", read = phase "second_backward" },
  { name = "norms", unit = "ms", read = function(point)
    local parts = point.result.norms_ms
    return sum_of(point.result.layers, "norm_ms") or parts and parts["local"]
  end },
  { name = "clipped sum", unit = "ms", read = phase "clipped_sum" },
  { name = "norm all-reduce", unit = "ms", read = function(point)
    local parts = point.result.norms_ms
    return phase("norm_reduce")(point) or parts and parts.reduce
  end },
  { name = "communication", unit = "ms", read = function(point) return point.metrics.comm_work_ms end },
  { name = "communicated", unit = "MiB", read = function(point)
    return point.metrics.comm_bytes and point.metrics.comm_bytes / 2 ^ 20
  end },
  { name = "step", unit = "ms", read = function(point) return point.metrics.min_time_ms or point.metrics.median_time_ms end },
  { name = "peak memory", unit = "MiB", read = function(point) return point.metrics.peak_memory_mb end },
  { name = "activations", unit = "MiB", read = owner_at_peak "activations" },
}

--- Points with status ok that agree in all axes but one, in the order of the folder.
local function families(results, axis)
  local list, by_key = {}, {}
  for _, point in ipairs(results.points) do
    if point.status == "ok" then
      local parts = {}
      for _, name in ipairs(results.axes) do
        if name ~= axis then parts[#parts + 1] = tostring((point.asked or {})[name] or point.options[name]) end
      end
      local key = table.concat(parts, ", ")
      if not by_key[key] then
        by_key[key] = { name = key ~= "" and key or point.options.mode, mode = point.options.mode, points = {} }
        list[#list + 1] = by_key[key]
      end
      table.insert(by_key[key].points, point)
    end
  end
  return list
end

--- Fits every quantity of every family of points.
-- @tparam Runs results
-- @tparam[opt] table options axis ("seq_length")
-- @treturn Table prints as a table; `fits[family][quantity]` are the fits themselves
-- @usage print(ms.analyze.scaling(ms.load("results/run_…")))
function M.analyze(results, options)
  options = guard.check("ms.analyze.scaling", options, { "axis" }, 2)
  local axis = options.axis or "seq_length"
  local columns = { "", "of", "at " .. axis, "", "exponent", "+-", "last two", "a + b T", "a + b T^2", "verdict" }
  local rows, fits, modes = {}, {}, {}
  for _, family in ipairs(families(results, axis)) do
    fits[family.name], modes[family.name] = {}, family.mode
    for _, quantity in ipairs(M.quantities) do
      local x, y = {}, {}
      for i, point in ipairs(family.points) do
        x[i], y[i] = point.options[axis], quantity.read(point) or false
      end
      local fit = M.fit(x, y)
      if fit then
        fits[family.name][quantity.name] = fit
        local function error_of(which) return ("%.1f %% off"):format(100 * which.error) end
        rows[#rows + 1] = { family.name, quantity.name, ("%g … %g"):format(fit.x[1], fit.x[fit.count]),
          ("%.3g … %.3g %s"):format(fit.y[1], fit.y[fit.count], quantity.unit), ("%.2f"):format(fit.exponent),
          fit.standard_error and ("%.2f"):format(fit.standard_error), fit.last_exponent and ("%.2f"):format(fit.last_exponent),
          error_of(fit.linear), error_of(fit.quadratic), fit.verdict }
      end
    end
  end
  return text_table.new {
    title = "Growth with " .. axis .. ": y ~ T^p of the fastest samples (norms and communication: of the detailed step); "
      .. "which line with a fixed cost fits better",
    columns = columns, rows = rows, fits = fits, modes = modes, axis = axis }
end

return M
