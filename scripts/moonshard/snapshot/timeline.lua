--- Memory over time out of PyTorch's memory history (torch.cuda.memory._dump_snapshot, or our memory_history = true): total bytes,
-- and bytes of the places in the program that allocated the most. For files of any program.
local lists = require "moonshard.lists"
local pickle = require "moonshard.snapshot.pickle"
local plot_spec = require "moonshard.plot_spec"
local shell = require "moonshard.shell"

local M = {}

--- Samples of a timeline, and places that are shown by themselves.
M.most_samples, M.most_places = 400, 8

local function list_of(value) return type(value) == "table" and value ~= pickle.null and value or {} end
local function number_of(value) return type(value) == "number" and value == value and value or 0 end

--- Whether a frame is the allocator's or the unwinder's own: every stack begins with some of those.
local function is_machinery(name)
  return name:find("torch::unwind", 1, true) or name:find("CUDACachingAllocator", 1, true) or name:find("^c10::")
    or name:find("^at::detail")
end

--- "train.py:30 forward": the innermost frame of the user's own code; of a stack without one the innermost that is Python's or that is not
-- the allocator's.
local function place_of(event)
  local python, other, first
  for _, frame in ipairs(list_of(event.frames)) do
    local file, name = tostring(frame.filename or "?"), tostring(frame.name or "?")
    local is_known = file ~= "??" and file ~= "" and file ~= "?"
    local text = (is_known and ("%s:%s "):format(file:match("([^/]+)$") or file, tostring(frame.line or "?")) or "") .. name:sub(1, 60)
    local is_python = file:match("%.py$") ~= nil
    if name:find("moonshard::", 1, true) or is_python and not file:find("/torch/", 1, true) then return text end
    first, python = first or text, python or is_python and text or nil
    other = other or not is_machinery(name) and text or nil
  end
  return python or other or first or "unknown place"
end

--- Events of the device that has the most.
local function busiest(traces)
  local best, index = {}, 0
  for i, events in ipairs(list_of(traces)) do
    if #list_of(events) > #best then best, index = events, i - 1 end
  end
  return best, index
end

--- Bytes in use at the end, by the snapshot's segments of a device.
local function held_at_end(segments, device)
  local bytes, reserved = 0, 0
  for _, segment in ipairs(list_of(segments)) do
    if number_of(segment.device) == device then
      bytes, reserved = bytes + number_of(segment.allocated_size), reserved + number_of(segment.total_size)
    end
  end
  return bytes, reserved
end

--- Walks the events: calls change(time_us, bytes, place) for every block that is taken or given back. A block that is given back
-- belongs to the place that took it, if the history has that.
local function walk(events, change)
  local owner_of, size_of = {}, {}
  for _, event in ipairs(events) do
    local action, address = event.action, event.addr
    if action == "alloc" then
      owner_of[address], size_of[address] = place_of(event), number_of(event.size)
      change(number_of(event.time_us), number_of(event.size), owner_of[address])
    elseif action == "free_completed" then
      change(number_of(event.time_us), -(size_of[address] or number_of(event.size)), owner_of[address])
      owner_of[address], size_of[address] = nil, nil
    end
  end
end

--- The places with the highest peaks of their own, and bytes that were held before the history began.
local function survey(events, at_end)
  local now, peak, net = {}, {}, 0
  walk(events, function(_, bytes, place)
    net = net + bytes
    if not place then return end
    now[place] = (now[place] or 0) + bytes
    peak[place] = math.max(peak[place] or 0, now[place])
  end)
  local places = lists.keys(peak)
  table.sort(places, function(a, b)
    if peak[a] ~= peak[b] then return peak[a] > peak[b] end
    return a < b
  end)
  local shown = {}
  for i = 1, math.min(#places, M.most_places) do shown[i] = places[i] end
  return shown, math.max(at_end - net, 0), #places
end

--- Of every interval the moment with the most bytes, so that no peak is lost.
local function thinned(samples)
  if #samples <= M.most_samples then return samples end
  local kept, width = {}, #samples / M.most_samples
  for i = 1, M.most_samples do
    local best
    for k = math.floor((i - 1) * width) + 1, math.min(math.floor(i * width), #samples) do
      if not best or samples[k].total > best.total then best = samples[k] end
    end
    kept[#kept + 1] = best
  end
  return kept
end

--- Reads a snapshot.
-- @tparam string path of a .pickle
-- @treturn table path, device, events, peak_bytes, reserved_bytes, before_bytes, num_places, ms, total, places (name -> bytes per sample),
-- order (names of places, the largest first)
function M.load(path)
  if type(path) ~= "string" then error(("ms.snapshot: expected a file's path, got a %s"):format(type(path)), 2) end
  local text = shell.read(path)
  if not text then error(("%s: expected a memory snapshot, got nothing that can be read"):format(path:sub(1, 200)), 0) end
  local content = pickle.parse(text, path)
  if type(content) ~= "table" or type(content.segments) ~= "table" then
    error(("%s: expected a memory snapshot of PyTorch (segments, device_traces), got another pickle"):format(path), 0)
  end
  local events, device = busiest(content.device_traces)
  local at_end, reserved = held_at_end(content.segments, device)
  if #events == 0 then
    error(("%s: expected a history of allocations, got none; record it with torch.cuda.memory._record_memory_history, or with "
      .. "memory_history = true"):format(path), 0)
  end
  local shown, before, num_places = survey(events, at_end)
  local is_shown, now, total, samples, start, peak = lists.set(shown), {}, before, {}, nil, before
  walk(events, function(time_us, bytes, place)
    start = start or time_us
    total = total + bytes
    peak = math.max(peak, total)
    if place and is_shown[place] then now[place] = (now[place] or 0) + bytes end
    local sample = { ms = (time_us - start) / 1000, total = total }
    for i, name in ipairs(shown) do sample[i] = now[name] or 0 end
    samples[#samples + 1] = sample
  end)
  samples = thinned(samples)
  local result = { path = path, device = device, events = #events, peak_bytes = peak, reserved_bytes = reserved, before_bytes = before,
    num_places = num_places, order = shown, places = {}, ms = lists.column(samples, "ms"), total = lists.column(samples, "total") }
  for i, name in ipairs(shown) do result.places[name] = lists.map(samples, function(sample) return sample[i] end) end
  return result
end

--- The figure: memory over time, stacked by place.
-- @tparam table snapshot of M.load
-- @treturn table plot spec
function M.spec(snapshot)
  local unit, factor = plot_spec.memory_unit(snapshot.peak_bytes)
  local time_unit, per_ms = plot_spec.time_unit(snapshot.ms[#snapshot.ms] or 0)
  local x = lists.map(snapshot.ms, function(ms) return ms * per_ms end)
  local series, sums = {}, {}
  for _, name in ipairs(snapshot.order) do
    local values = snapshot.places[name]
    series[#series + 1] = { name = name, x = x, y = lists.map(values, function(bytes) return bytes * factor end) }
    for i, bytes in ipairs(values) do sums[i] = (sums[i] or 0) + bytes end
  end
  local rest = lists.map(snapshot.total, function(total, i) return math.max(total - (sums[i] or 0), 0) * factor end)
  series[#series + 1] = { name = "other places, and before the history", x = x, y = rest }
  local name = snapshot.path:match("([^/]+)$") or snapshot.path
  return { schema_version = 1, title = ("Memory over time: %s"):format(name), width = 1100, height = 620,
    note = ("Device %d, %d events, %d places that allocate; peak %.4g %s, reserved at the end %.4g %s."):format(snapshot.device,
      snapshot.events, snapshot.num_places, snapshot.peak_bytes * factor, unit, snapshot.reserved_bytes * factor, unit),
    panels = { { kind = "stacked_area", title = "", x = { label = "time", unit = time_unit }, y = { label = "memory", unit = unit },
      series = series } } }
end

return M
