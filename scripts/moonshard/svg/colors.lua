--- Colours of series as indices into the page's palette: the names and indices of viewer/widgets/colors.cpp, so that an engine
-- has the same colour in a report as in the viewer.
local M = {}

--- Colours 0 to 15 on light and on dark ground.
M.light = { "0072B2", "D55E00", "009E73", "E69F00", "CC79A7", "56B4E9", "7F7F7F", "B8A800", "332288", "882255", "44AA99", "DDCC77",
  "8A8A2B", "7A4A1E", "AA4499", "C4C4C4" }
M.dark = { "3D9BDC", "EE7733", "22B88C", "E8AC1C", "D98DB8", "8CCBF2", "A8A8A8", "F0E442", "7D6BD6", "B8406F", "5CC4B3", "E5D890",
  "B3B347", "A87445", "C468B4", "6E6E6E" }

--- Heat maps, low to high.
M.heat = { { 0xFF, 0xF7, 0xD6 }, { 0xCF, 0xE8, 0xB4 }, { 0x7C, 0xCB, 0xB5 }, { 0x3A, 0x9F, 0xC0 }, { 0x2A, 0x66, 0xA8 },
  { 0x1B, 0x2C, 0x6B } }

--- Indices of names that have a colour of their own.
M.named = {}
for _, row in ipairs {
  { 6, "none", "no_dp", "no_dp_single", "vanilla" }, { 1, "materialize", "materialized" }, { 0, "ghost", "ghost_fsdp", "ghost_clip" },
  { 3, "flash", "flash_fsdp", "flash_clip" }, { 2, "bookkeeping", "bookkeeping_fsdp", "ghost_bookkeeping" },
  { 4, "flash_bookkeeping", "flash_bookkeeping_fsdp", "flash_clip_bookkeeping" }, { 5, "auto" },
  { 1, "ddp", "zero2" }, { 0, "fsdp", "zero3" }, { 2, "zero2_replicated" },
  { 0, "parameters" }, { 12, "gathered_parameters" }, { 6, "cast_parameters", "other" }, { 5, "gradients" }, { 8, "optimizer_state" },
  { 2, "activations" }, { 14, "output_gradients" }, { 11, "engine_kept" }, { 7, "norm_samples" }, { 1, "temporaries_ggt" },
  { 3, "temporaries_aat" }, { 9, "engine_temporaries" }, { 4, "communication" }, { 13, "data" }, { 10, "step_temporaries" },
  { 15, "rest" },
  { 14, "gather" }, { 0, "forward" }, { 6, "graph" }, { 5, "backward" }, { 3, "norms" }, { 12, "noise" }, { 4, "norm_reduce" },
  { 7, "clip_factors" }, { 2, "clipped_sum" }, { 8, "second_backward" }, { 9, "reduce" }, { 10, "update" }, { 1, "optimizer" },
  { 0, "compute" },
  { 4, "exposed communication" },
} do
  for i = 2, #row do M.named[row[i]:gsub("_", " ")] = row[1] end
end

--- A colour index for every series of a figure: its name's own, the one the spec asks for, or the next that is free.
-- @tparam {table,...} panels of a plot spec
-- @treturn table by name
-- @treturn {string,...} names in the order in which they first come
function M.of_figure(panels)
  local index, order, taken = {}, {}, {}
  local function each_series(visit)
    for _, panel in ipairs(panels) do
      for _, series in ipairs(panel.series) do visit(series) end
    end
  end
  each_series(function(series)
    if index[series.name] then return end
    order[#order + 1] = series.name
    index[series.name] = M.named[series.name:lower():gsub("_", " ")] or series.color or false
    if index[series.name] then taken[index[series.name]] = true end
  end)
  local next_free = 0
  for _, name in ipairs(order) do
    if not index[name] then
      while taken[next_free] and next_free < 16 do next_free = next_free + 1 end
      index[name], next_free = next_free % 16, next_free + 1
    end
  end
  return index, order
end

--- A heat map's colour at a share between 0 and 1, and whether text on it should be white.
function M.heat_at(share)
  local place = 1 + math.max(0, math.min(1, share)) * (#M.heat - 1)
  local below = math.min(math.floor(place), #M.heat - 1)
  local a, b, t = M.heat[below], M.heat[below + 1], place - below
  local function mix(c) return math.floor(a[c] + (b[c] - a[c]) * t + 0.5) end
  local red, green, blue = mix(1), mix(2), mix(3)
  return ("#%02X%02X%02X"):format(red, green, blue), 0.3 * red + 0.59 * green + 0.11 * blue < 140
end

return M
