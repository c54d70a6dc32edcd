--- Axes as numbers: nice ends and ticks, linear and logarithmic, and the place of a value between the ends.
local M = {}

--- A number as a tick or a value beside a mark shows it.
function M.number_text(value)
  if value == 0 then return "0" end
  local size = math.abs(value)
  if size >= 1e7 or size < 1e-4 then return (("%.3g"):format(value):gsub("e%+?(%-?)0*", "e%1")) end
  if value == math.floor(value) then return ("%d"):format(value) end
  if size >= 1000 then return ("%.0f"):format(value) end
  return ("%.3g"):format(value)
end

--- The largest of 1, 2, 5 times a power of ten that is at most this.
local function round_step(size)
  local power = 10 ^ math.floor(math.log10(size))
  local lead = size / power
  return power * (lead >= 5 and 5 or lead >= 2 and 2 or 1)
end

local function linear(low, high, wanted, fixed_low, fixed_high)
  if high <= low then high = low + math.max(1, math.abs(low)) end
  local step = round_step((high - low) / wanted * 1.6)
  if not fixed_low then low = math.floor(low / step + 1e-9) * step end
  if not fixed_high then high = math.ceil(high / step - 1e-9) * step end
  local ticks = {}
  for i = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) do ticks[#ticks + 1] = i * step end
  return { low = low, high = high, ticks = ticks, share = function(value) return (value - low) / (high - low) end }
end

local function logarithmic(low, high, wanted)
  if high <= low then low, high = low / 2, high * 2 end
  local first, last = math.log10(low), math.log10(high)
  local leads = last - first > wanted and { 1 } or last - first > 1.2 and { 1, 2, 5 } or { 1, 1.5, 2, 3, 4, 5, 7 }
  local every = last - first > 2 * wanted and math.ceil((last - first) / wanted) or 1
  local ticks = {}
  for power = math.floor(first), math.ceil(last), every do
    for _, lead in ipairs(leads) do
      local value = lead * 10 ^ power
      if value >= low * 0.9999 and value <= high * 1.0001 then ticks[#ticks + 1] = value end
    end
  end
  return { low = low, high = high, ticks = ticks, is_log = true,
    share = function(value) return value > 0 and (math.log10(value) - first) / (last - first) or 0 end }
end

--- A scale for values between low and high.
-- @tparam table axis of a plot spec: scale, min, max
-- @tparam number wanted about how many ticks
function M.new(axis, low, high, wanted)
  if axis.scale == "log" and low > 0 then return logarithmic(axis.min and axis.min > 0 and axis.min or low, axis.max or high, wanted) end
  return linear(axis.min or low, axis.max or high, wanted, axis.min, axis.max)
end

return M
