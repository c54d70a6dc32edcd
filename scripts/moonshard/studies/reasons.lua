--- Why a claim is refuted, from what the records say of both points, and when it would hold: owners of memory, phases of the
-- step, collectives. Every function returns a text, or nil where the records do not say.
local lists = require "moonshard.lists"
local plot_points = require "moonshard.plot_points"
local pretty = require "moonshard.pretty"

local M = {}

--- Owners that grow with the tokens of a micro-batch; all others depend on the model alone.
local per_token = lists.set { "activations", "output_gradients", "engine_kept", "norm_samples", "temporaries_ggt", "temporaries_aat",
  "engine_temporaries", "data" }

local function signed(text, value) return (value > 0 and "+" or "") .. text end

--- Differences of two tables by name: { name, value }, the largest first, those below a share of the largest left out.
local function differences(of, to, least_share)
  local found, largest = {}, 0
  for name in pairs(lists.set(lists.extend(lists.keys(of), lists.keys(to)))) do
    local value = (of[name] or 0) - (to[name] or 0)
    if value ~= 0 then found[#found + 1] = { name = name, value = value } end
    largest = math.max(largest, math.abs(value))
  end
  table.sort(found, function(a, b)
    if math.abs(a.value) ~= math.abs(b.value) then return math.abs(a.value) > math.abs(b.value) end
    return a.name < b.name
  end)
  return lists.select(found, function(each) return math.abs(each.value) >= least_share * largest end)
end

local function described(list, shown, most)
  local parts = {}
  for i = 1, math.min(#list, most) do
    parts[i] = ("%s %s"):format(plot_points.shown(list[i].name), signed(shown(list[i].value), list[i].value))
  end
  return table.concat(parts, ", ")
end

local function owners_of(point)
  local owners, any = {}, false
  for _, row in ipairs(plot_points.part(point, "memory", "breakdown")) do
    local bytes = type(row) == "table" and plot_points.number(row.bytes)
    if bytes then
      owners[tostring(row.owner)] = (owners[tostring(row.owner)] or 0) + bytes
      any = true
    end
  end
  return any and owners or nil
end

--- By which factor tokens must change until `of` is more (or less) than `bound` times `to`: what grows with them is multiplied by
-- it, the rest stays. Nil where no factor does that.
local function token_factor(of, to, wants_more, bound)
  local sign = wants_more and 1 or -1
  local by_token, fixed = 0, 0
  for name in pairs(lists.set(lists.extend(lists.keys(of), lists.keys(to)))) do
    local value = sign * ((of[name] or 0) - bound * (to[name] or 0))
    if per_token[name] then by_token = by_token + value else fixed = fixed + value end
  end
  -- k by_token + fixed > 0 is what the claim asks for; now, at k = 1, it is not.
  if by_token > 0 and fixed < 0 then return -fixed / by_token, "more" end
  if by_token < 0 and fixed > 0 then return fixed / -by_token, "fewer" end
end

--- Peak memory of two points: which owners make the difference, and from how many tokens on the claim would hold.
-- @tparam table of, to points
-- @tparam boolean wants_more the claim says that `of` needs more
-- @tparam[opt=1] number bound than that many times `to`
function M.memory(of, to, wants_more, bound)
  local first, second = owners_of(of), owners_of(to)
  if not first or not second then return nil end
  local large = differences(first, second, 0.05)
  if #large == 0 then return "why: at the peak every owner holds the same; it would hold where the engines differ in what they keep" end
  local phases = { plot_points.part(of, "memory").peak_phase, plot_points.part(to, "memory").peak_phase }
  local text = ("why: at the peak %s%s"):format(described(large, pretty.size, 4),
    phases[1] and phases[2] and phases[1] ~= phases[2] and (" (peak in %s against %s)"):format(phases[1], phases[2]) or "")
  local factor, direction = token_factor(first, second, wants_more, bound or 1)
  if factor and direction == "more" then
    return ("%s; it would hold from about %.2g times the tokens per micro-batch on, where what grows with them outweighs the rest")
      :format(text, factor)
  elseif factor then
    return ("%s; it would hold below about %.2g times the tokens per micro-batch"):format(text, factor)
  end
  return text .. "; no number of tokens changes that: options that decide on these owners do"
end

local function phases_of(point)
  local phases, any = {}, false
  for _, name in ipairs(plot_points.phases { point }) do
    local ms = plot_points.phase_ms(point, name)
    if ms then
      phases[name] = ms
      any = true
    end
  end
  return any and phases or nil
end

local function ms_text(ms) return ("%.4g ms"):format(ms) end

--- Step times of two points: which phases make the difference, and how much is missing.
-- @tparam number bound the ratio of `of` to `to` that the claim asks for
function M.time(of, to, wants_more, bound)
  local first, second = phases_of(of), phases_of(to)
  local own, other = plot_points.step_ms(of), plot_points.step_ms(to)
  if not own or not other then return nil end
  local text = "why: "
  if first and second then
    local large = differences(first, second, 0.1)
    text = text .. (#large > 0 and described(large, ms_text, 4) or "no phase differs")
  else
    text = text .. "the records have no phases"
  end
  local wanted = bound * other
  return ("%s; it would hold if the step took %s (it takes %s)"):format(text, (wants_more and "at least " or "at most ") .. ms_text(wanted),
    ms_text(own))
end

local function collectives_of(point, key)
  local values, any = {}, false
  for _, row in ipairs(plot_points.part(point, "comm")) do
    local value = type(row) == "table" and plot_points.number(row[key])
    if value then
      values[tostring(row.operation)] = (values[tostring(row.operation)] or 0) + value
      any = true
    end
  end
  return any and values or nil
end

--- Communication of two points, by kind of collective.
-- @tparam string metric "comm_bytes", "comm_work_ms" or "comm_exposed_ms"
function M.communication(of, to, metric)
  local key = ({ comm_bytes = "bytes", comm_work_ms = "work_ms", comm_exposed_ms = "exposed_ms" })[metric]
  local first, second = key and collectives_of(of, key), key and collectives_of(to, key)
  if not first or not second then return nil end
  local shown = key == "bytes" and pretty.size or ms_text
  local parts = lists.map(lists.keys(lists.set(lists.extend(lists.keys(first), lists.keys(second)))), function(name)
    return ("%s %s against %s"):format(name:gsub("_", " "), shown(first[name] or 0), shown(second[name] or 0))
  end)
  return ("why: %s%s"):format(table.concat(parts, ", "),
    plot_points.modelled_ranks(of) and "; times are modelled from a link, so that only bytes and launches make them" or "")
end

--- The reason for a refuted ratio, by what the figure is.
-- @tparam string metric
function M.of_ratio(of, to, metric, wants_more, bound)
  if type(metric) ~= "string" then return nil end
  if metric:match("^peak_memory") then return M.memory(of, to, wants_more, bound) end
  if metric == "median_time_ms" or metric == "avg_time_ms" then return M.time(of, to, wants_more, bound) end
  if metric == "tokens_per_s" or metric == "samples_per_s" then
    return M.time(of, to, not wants_more, bound ~= 0 and 1 / bound or 1)
  end
  if metric:match("^comm_") then return M.communication(of, to, metric) end
end

--- Tokens at which attention, whose work per token grows with the length, costs as much as all linear layers; nil for
-- models that are not decoders.
function M.attention_equals_linear(options)
  local width, inner = plot_points.number(options.hidden_dim), plot_points.number(options.intermediate_dim)
  local heads, kv = plot_points.number(options.num_heads), plot_points.number(options.num_kv_heads)
  if not width or width == 0 or not inner or inner == 0 or not heads or heads == 0 then return nil end
  local linear = 2 * (width * width * (2 + 2 * (kv or heads) / heads) + 3 * width * inner)
  return linear / (2 * width)  -- causal: half of 4 T d
end

--- The reason for a refuted growth: what grows faster or slower than claimed.
-- @tparam table options of a point
-- @tparam number longest sequence that was measured
function M.of_growth(quantity, options, longest)
  local equal = M.attention_equals_linear(options)
  if (quantity == "forward" or quantity == "backward") and equal then
    return ("why: linear layers take O(T), attention O(T^2); both cost the same at about %.3g tokens, and the longest here has %d, so "
      .. "O(T) holds for lengths far below that and O(T^2) far above"):format(equal, longest)
  end
  if quantity == "peak memory" then
    return "why: parameters and optimizer state do not grow, activations do: it would hold for lengths at which activations dominate"
  end
  if quantity == "norm all-reduce" or quantity == "communicated" then
    return "why: one number per sample is sent whatever the length; a time that grows is the wait for the slower rank, not the message"
  end
end

--- The reason for a refuted bound: which points are outside.
-- @tparam {table,...} items point, value, at
function M.of_bound(items, least, most)
  local outside, inside = {}, 0
  for _, item in ipairs(items) do
    if (least and item.value < least) or (most and item.value > most) then
      outside[#outside + 1] = ("%s: %.3g"):format(item.at, item.value)
    else
      inside = inside + 1
    end
  end
  if #outside == 0 then return nil end
  local shown = table.concat(outside, ", ", 1, math.min(#outside, 4)) .. (#outside > 4 and (", and %d more"):format(#outside - 4) or "")
  return ("why: outside are %s; it holds at the other %d"):format(shown, inside)
end

return M
