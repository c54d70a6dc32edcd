--- The training curve of Trainer:fit: a row per step in a run folder, and in a file that has each row before its step's checkpoint is
-- saved. A run that goes on from a checkpoint (Trainer:durable) goes on with the curve: without gaps, and without rows of steps that are
-- done again.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local own_record = require "moonshard.own_record"
local run_log = require "moonshard.run_log"

local M = {}
local Curve = {}
Curve.__index = Curve

local file_name = "curve.jsonl"

local function scalars(row)
  local kept = {}
  for key, value in pairs(row) do
    if type(value) ~= "table" then kept[key] = value end
  end
  return kept
end

--- Rows of a curve file up to a step, in order, what was added to a step later merged into its row. A line that a kill has torn is no row.
local function read_rows(path, last)
  local rows, by_step = {}, {}
  local file = io.open(path, "r")
  for line in file and file:lines() or function() end do
    local ok, row = pcall(native.records.parse_json, line)
    if ok and type(row) == "table" and type(row.step) == "number" and row.step <= last then
      local known = by_step[row.step]
      if not known then
        known = { warmup = false }
        by_step[row.step], rows[#rows + 1] = known, known
      end
      for key, value in pairs(scalars(row)) do known[key] = value end
    end
  end
  if file then file:close() end
  table.sort(rows, function(a, b) return a.step < b.step end)
  return rows
end

--- The newest run folder of that name in a folder; nil without one.
local function newest_run(out, name)
  local ok, names = pcall(native.files.list, out)
  local found
  for _, each in ipairs(ok and names or {}) do
    if each:match("^run_%d+_%d+_(.*)/$") == name then found = ("%s/%s"):format(out, each:sub(1, -2)) end
  end
  return found
end

--- Exact norms of samples are secret where the run claims an epsilon, unless the script says otherwise.
local function takes_norms(trainer, options)
  if options.record_norms ~= nil then return options.record_norms end
  return trainer:privacy().why_no_epsilon ~= nil
end

local function goes_on(self, trainer, out, name)
  local path = newest_run(out, name)
  if not path then return end
  self.log = run_log.go_on(path)
  self.file = ("%s/points/%s/%s"):format(path, self.log.id, file_name)
  local rows = read_rows(self.file, trainer.steps)
  lists.extend(self.log.steps, rows)
  native.files.write(self.file, table.concat(lists.map(rows, function(row) return native.records.to_json_line(row) .. "\n" end)))
  self.is_resumed = true
end

--- @tparam Trainer trainer
-- @tparam table options of Trainer:fit
function M.open(trainer, options)
  local self = setmetatable({ trainer = trainer }, Curve)
  local norms = takes_norms(trainer, options)
  local durable, name = native.training.durable_folder(trainer), options.name or "fit"
  local out = options.out or durable or "results"
  if options.log ~= false and package.loaded["moonshard"].dist.rank() == 0 then
    if durable and trainer.steps > 0 then goes_on(self, trainer, out, name) end
    if not self.log then
      self.log = run_log.run { name = name, out = out, options = options.options, tags = { "fit" } }
      self.file = ("%s/points/%s/%s"):format(self.log.path or "", self.log.id or "", file_name)
    end
    self.path = self.log.path
    if not self.path then self.file = nil end -- a point of a sweep has a folder of its own
  end
  native.training.curve(trainer, true, norms, self.file)
  return self
end

--- A step's row, or what an evaluation adds to it; of a step it is in the file already.
function Curve:add(step, row)
  if not self.log then return end
  local last = self.log.steps[#self.log.steps]
  if not last or last.step ~= step then return self.log:log(step, scalars(row)) end
  for key, value in pairs(row) do last[key] = value end
  if self.file then native.files.append_private(self.file, native.records.to_json_line(lists.merged(row, { step = step })) .. "\n") end
end

--- Whether a run that went on was killed before the evaluation of the step that it went on from.
function Curve:lacks_evaluation(step)
  local last = self.is_resumed and self.log.steps[#self.log.steps]
  return last and last.step == step and last.eval_loss == nil and last.accuracy == nil
end

--- The best evaluation of a run that went on, and how many came after it.
function Curve:judged(metric, more_is_better)
  local best, waited = nil, 0
  for _, row in ipairs(self.is_resumed and self.log.steps or {}) do
    local value = row[metric == "loss" and "eval_loss" or metric]
    if value ~= nil then
      local is_better = not best or (more_is_better and value > best.value) or (not more_is_better and value < best.value)
      if is_better then best = { step = row.step, value = value, metric = metric } end
      waited = is_better and 0 or waited + 1
    end
  end
  return best, waited
end

function Curve:finish(fit)
  if not self.log then return end
  local last, privacy = fit.last or {}, self.trainer:privacy()
  local figures = { steps = fit.steps, eval_loss = last.loss, perplexity = last.perplexity, accuracy = last.accuracy,
    macro_f1 = last.macro_f1, epsilon = privacy.epsilon, stopped = fit.stopped }
  if fit.best then figures["best_" .. fit.best.metric], figures.best_step = fit.best.value, fit.best.step end
  if last.privacy then figures.evaluation_privacy = last.privacy end
  self.log:finish(own_record.check_values("Trainer:fit", figures), { privacy = privacy })
end

--- The run ended by an error; one that somebody has asked for leaves what is known, to go on from.
function Curve:fail(problem)
  if not self.log then return end
  if problem:find("interrupted", 1, true) or problem:find("asked to end", 1, true) then return run_log.leave(self.log) end
  self.log:fail(problem)
end

return M
