--- The largest batch that fits: from the predicted one on in growing steps, then halving the gap. Each try is a separate process, so
-- that none inherits another's memory, and each is recorded, so that an interrupted search can be resumed.
local blame = require "moonshard.sweep.blame"
local device = require "moonshard.sweep.device"
local folders = require "moonshard.sweep.folder"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local points_of = require "moonshard.sweep.points"
local pretty = require "moonshard.pretty"
local progress = require "moonshard.progress"
local runner = require "moonshard.sweep.runner"

local own_keys = { name = "string", out = "string", low = "number", high = "number", verify = "boolean", timeout = "number",
  resume = "string", lock = "boolean", quiet = "boolean" }

local function check(options)
  if type(options) ~= "table" then blame("ms.find_max_batch: expected a table, got %s", type(options)) end
  points_of.check_keys("ms.find_max_batch", options, lists.keys(own_keys))
  for key, wanted in pairs(own_keys) do
    if options[key] ~= nil and type(options[key]) ~= wanted then
      blame("ms.find_max_batch: option '%s': expected a %s, got %s", key, wanted, tostring(options[key]))
    end
  end
  for _, key in ipairs { "low", "high" } do
    local value = options[key]
    if value and (value < 1 or value ~= math.floor(value)) then
      blame("ms.find_max_batch: option '%s': expected a whole number from 1, got %s", key, tostring(value))
    end
  end
  if options.high and options.high < (options.low or 1) then
    blame("ms.find_max_batch: option 'high': expected %d or more, got %d", options.low or 1, options.high)
  end
end

--- The experiment of one try: short, but two steps, because the optimizer's state comes with the first.
local function point_of(shared, batch_size, is_whole)
  local options = lists.merged(shared, { batch_size = batch_size })
  if not is_whole then
    options.warmup, options.iters, options.profile = 1, 1, "off"
  end
  local resolved, problem = points_of.resolve(options)
  if not resolved then blame("%s", (problem:gsub("^ms%.sweep:", "ms.find_max_batch:"))) end
  local label = ("batch_size=%d%s"):format(batch_size, is_whole and ", whole run" or "")
  return { id = resolved.id, options = resolved.options, asked = { batch_size = batch_size }, label = label,
    file = ("batch%d_%s_result.json"):format(batch_size, resolved.id:sub(1, 8)) }
end

--- Of a batch that is predicted to fit: how far the largest that does may be from it.
local prediction_error = 0.04

--- A search is a sweep whose points come one by one: sweep.json is written anew with each.
local Search = {}
Search.__index = Search

function Search:plan(point)
  if lists.contains(lists.column(self.points, "id"), point.id) then return end
  self.points[#self.points + 1] = point
  folders.write_plan(self.job.folder.writer, self)
end

--- Whether a batch fits. Other failures end the search: they say nothing about memory.
function Search:fits(batch_size, is_whole)
  if native.launch.interrupts() > 0 then error(self.stopped, 0) end  -- the try before this one was let to end
  local job, point = self.job, point_of(self.shared, batch_size, is_whole)
  local record = job.folder.known[point.id]
  local was_known = record and (record.status == "ok" or record.status == "oom" or record.status == "timeout")
  if was_known then
    record = native.records.load_point(job.folder.path, point.id)
  else
    self:plan(point)
    job.bar.total = job.bar.done + 1
    job.bar:start(point, "try")
    record = runner.run_point(job, point)
    if not record or record.status == "interrupted" then error(self.stopped, 0) end
    job.bar:finish(point, outcome.describe(record), false)
  end
  self.tries[#self.tries + 1] = { batch_size = batch_size, status = record.status, id = point.id, whole = is_whole or false,
    peak_memory_bytes = record.metrics.peak_memory_bytes, median_time_ms = record.metrics.median_time_ms, error = record.error }
  if record.status == "failed" then
    error(("ms.find_max_batch: batch_size %d failed for another reason than memory: %s"):format(batch_size, record.error), 0)
  end
  if record.status == "ok" then
    self.fitting[batch_size] = record
  else
    self.worst, self.fitting[batch_size] = batch_size, nil
  end
  return record.status == "ok"
end

--- The largest that is known to fit, and its record; 0 when none is.
function Search:best()
  local best = 0
  for batch_size in pairs(self.fitting) do best = math.max(best, batch_size) end
  return best, self.fitting[best]
end

--- The largest batch that is predicted to fit, as a place to start: the search is right whatever it says.
local function predicted_batch(options, low, high)
  local on_gpu = options.device ~= nil and options.device ~= "cpu"
  local memory = (options.memory_limit_mb or 0) * 2 ^ 20
  if memory == 0 then
    local gpus = on_gpu and package.loaded["moonshard"].gpus().gpus or {}
    memory = gpus[1] and gpus[1].memory_total_bytes or 0
  end
  local ranks = tonumber(tostring(options.world):match "^fake:(%d+)") or options.nproc or 1
  if memory == 0 then return low end
  local machine = require("moonshard.plan_machines").find(on_gpu and "h200" or "cpu", 1).file
  local function fits(size)
    local ok, plan = pcall(native.plan.predict, lists.merged(options, { batch_size = size, world = "auto" }),
      { machine = machine, gpus = ranks, memory_bytes = memory })
    return ok and plan.fits
  end
  local best, worst = low, math.min(high, 2 ^ 20) + 1
  if not fits(low) then return low end
  while worst - best > 1 do
    local size = math.min(best * 2, math.floor((best + worst) / 2))
    if fits(size) then best = size else worst = size end
  end
  return best
end

--- From the prediction on, in steps that double, up while a batch fits or down until one does; then bisection; then the whole run of the
-- answer, which may need more than its try. When it does, the search goes on below. Predictions are a few percent off: the first step is
-- as small. Without one (`first` is `low`) batches double.
function Search:go(low, high, verify, first)
  local step = first > low and math.max(1, math.floor(first * prediction_error)) or nil
  local size, fits = first, self:fits(first)
  local goes_up = fits
  while fits == goes_up and (goes_up and size < high or not goes_up and size > low) do
    local by = step or size
    size = goes_up and math.min(size + by, high) or math.max(size - by, low)
    step = step and 2 * step
    fits = self:fits(size)
  end
  while true do
    local best = self:best()
    if best == 0 then return end
    if self.worst and self.worst - best > 1 then
      self:fits(math.floor((best + self.worst) / 2))
    elseif not verify or self:fits(best, true) then
      return
    end
  end
end

--- What a search found, as a line or two where it is printed.
local Found = {}
Found.__index = Found

function Found:__tostring()
  local tries = ("%d %s in %s"):format(#self.tries, #self.tries == 1 and "try" or "tries", self.path)
  if not self.batch_size then return ("no batch fits, not even %d; %s"):format(self.failed_at, tries) end
  local peak = self.peak_memory_bytes and ", peak " .. pretty.size(self.peak_memory_bytes) or ""
  local border = self.failed_at and ("; %d does not"):format(self.failed_at) or ""
  return ("batch_size %d fits%s%s; %s"):format(self.batch_size, peak, border, tries)
end

local function open_folder(search, options)
  if options.resume then
    local folder = folders.open({ points = {} }, options.resume)
    local run_table = native.records.table(options.resume)
    for i = 1, native.records.head(run_table).count do
      local point = native.records.planned(run_table, i)
      point.label = "batch_size=" .. tostring(point.options.batch_size)
      search.points[#search.points + 1] = point
    end
    return folder
  end
  return folders.create(search)
end

--- The largest batch_size that fits, found by trying.
-- @tparam table options low (1), high (none; on a CPU it or memory_limit_mb must be given), verify (true): runs the answer once
-- more with all iterations; timeout in seconds per try (a try that takes longer counts as not fitting); resume, out, name, lock,
-- quiet; and experiment options
-- @treturn table batch_size (nil when not even low fits), failed_at (smallest that did not fit, nil when high fits),
-- peak_memory_bytes, tries, path; print it
-- @usage ms.find_max_batch { model = "llama3-tiny", mode = "ghost", memory_limit_mb = 200 }
return function(options)
  check(options)
  local shared = {}
  for key, value in pairs(options) do
    if not own_keys[key] then shared[key] = value end
  end
  shared = points_of.with_own_names(shared, "ms.find_max_batch")
  if shared.batch_size then blame("ms.find_max_batch: option 'batch_size': expected low and high, got a batch size") end
  local low, high = options.low or 1, options.high or 2 ^ 30
  local first = point_of(shared, low)  -- mistakes are found before a folder is made
  if first.options.device == "cpu" and not options.high and (first.options.memory_limit_mb or 0) == 0 then
    blame("ms.find_max_batch: expected memory_limit_mb or high on a CPU, got neither; the search would take all of the machine's memory")
  end
  local search = setmetatable({ shared = shared, tries = {}, fitting = {}, points = {}, axes = { "batch_size" }, stopped = {},
    name = options.name or "max_batch", out = options.out or "results",
    request = { shared = shared, find_max_batch = { low = options.low or 1, high = options.high } } }, Search)
  local folder = open_folder(search, options)
  local bar = progress.new(0, native.launch.is_terminal() and not options.quiet, function(text)
    native.records.write_file(folder.writer, "progress.json", text)
  end)
  local say = bar.say
  if options.quiet then bar.say = function() end end
  bar:say(("largest batch: tries into %s"):format(folder.path))
  search.job = { sweep = { growing = {}, axes = {} }, folder = folder, bar = bar, out_of_memory = {},
    options = { retry = 0, timeout = options.timeout or 0, drain_timeout = 30, lock = options.lock } }
  search.job.device = device.new(search.job.options, function(text) bar:say(text) end, function() return native.launch.interrupts() > 0 end)
  native.launch.begin_interrupts()
  local ok, message = pcall(search.go, search, low, high, options.verify ~= false, predicted_batch(first.options, low, high))
  pcall(bar.stop, bar, ok and "finished" or "stopped")
  folders.close(folder)
  native.launch.end_interrupts()
  if message == search.stopped then
    say(bar, ("stopped; go on with ms.find_max_batch { resume = \"%s\", … }"):format(folder.path))
    native.launch.repeat_interrupt()
    error("interrupted", 0)
  end
  if not ok then blame("%s", tostring(message)) end
  local batch_size, best = search:best()
  return setmetatable({ batch_size = best and batch_size, failed_at = search.worst,
    peak_memory_bytes = best and best.metrics.peak_memory_bytes, tries = search.tries, path = folder.path }, Found)
end
