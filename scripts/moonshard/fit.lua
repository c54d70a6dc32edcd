--- Trainer:fit: training with evaluation, early stop, the best checkpoint and a curve in a run folder.
local curves = require "moonshard.fit_curve"
local evaluate = require "moonshard.evaluate"
local fit_progress = require "moonshard.fit_progress"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local Fit = {}
Fit.__index = Fit
local M = { class = Fit }

M.options = { "epochs", "steps", "evaluate", "evaluate_every", "evaluate_options", "metric", "patience", "best", "on_step", "on_evaluate",
  "name", "out", "options", "record_norms", "log", "progress" }

-- Figures of an evaluation that a run can be judged by, and whether more is better.
local is_more_better = { loss = false, perplexity = false, accuracy = true, macro_f1 = true }

local kinds = { epochs = "number", steps = "number", evaluate_every = "number", evaluate_options = "table", metric = "string",
  patience = "number", best = "string", on_step = "function", on_evaluate = "function", name = "string", out = "string",
  options = "table", record_norms = "boolean", log = "boolean", progress = "boolean" }

local function check(given, level)
  level = level + 1
  local options = guard.check("Trainer:fit", given, M.options, level)
  local function fail(...) error("Trainer:fit: " .. (...):format(select(2, ...)), level + 2) end
  for key, kind in pairs(kinds) do
    if options[key] ~= nil and type(options[key]) ~= kind then
      fail("option '%s': expected a %s, got %s", key, kind, tostring(options[key]))
    end
  end
  for _, key in ipairs { "epochs", "steps", "evaluate_every", "patience" } do
    if options[key] and not (options[key] > 0 and options[key] < math.huge) then
      fail("option '%s': expected a number above 0, got %s", key, tostring(options[key]))
    end
  end
  if options.epochs and options.steps then fail("expected epochs or steps, got both") end
  if not options.evaluate then
    for _, key in ipairs { "evaluate_every", "evaluate_options", "metric", "patience", "best", "on_evaluate" } do
      if options[key] ~= nil then fail("option '%s': expected a dataset beside it (evaluate = …), got none", key) end
    end
  end
  options.metric = options.metric or "loss"
  if is_more_better[options.metric] == nil then
    fail("option 'metric': expected one of %s, got '%s'", table.concat(lists.keys(is_more_better), ", "), options.metric)
  end
  return options, fail
end

--- The number of the last step: counted from the start of the run, those before a resume included.
local function last_step(trainer, options, fail)
  if options.steps then return math.ceil(options.steps) end
  if not options.epochs then
    if trainer.planned_steps == 0 then fail("expected epochs or steps, got neither, and the trainer has no plan (privacy = { epochs })") end
    return trainer.planned_steps
  end
  if trainer.steps_per_epoch == 0 then fail("option 'epochs': expected data that has an end, got none; give steps") end
  return math.max(1, math.ceil(options.epochs * trainer.steps_per_epoch - 1e-9))
end

--- What an evaluation adds to the curve's row of its step.
local function curve_figures(result)
  local row = { eval_loss = result.loss, perplexity = result.perplexity, accuracy = result.accuracy, macro_f1 = result.macro_f1 }
  for name, interval in pairs(result.intervals or {}) do
    local column = name == "loss" and "eval_loss" or name
    row[column .. "_low"], row[column .. "_high"] = interval.low, interval.high
  end
  return row
end

local function is_better(options, value, best)
  if value ~= value then return false end
  if not best then return true end
  if is_more_better[options.metric] then return value > best.value end
  return value < best.value
end

--- Evaluates, keeps what is best, and says whether to go on.
local function judge(run, step)
  local options, self = run.options, run.fit
  local result = evaluate.evaluate(run.trainer, options.evaluate, options.evaluate_options)
  local value = result[options.metric]
  if value == nil then
    run.fail("option 'metric': expected a figure of task %s, got '%s', which it does not have", result.task, options.metric)
  end
  self.evaluations[#self.evaluations + 1], self.last = { step = step, result = result }, result
  run.evaluated_at = step
  run.line:say(("step %d: %s"):format(step, M.one_line(result)))
  if is_better(options, value, self.best) then
    self.best = { step = step, value = value, metric = options.metric }
    run.waited = 0
    if options.best then self.best.path = run.trainer:save(options.best, { keep = 1 }) end
  else
    run.waited = run.waited + 1
  end
  -- After the save: a curve that has this evaluation has its checkpoint.
  run.curve:add(step, curve_figures(result))
  if options.on_evaluate and options.on_evaluate(result, step) == false then self.stopped = "on_evaluate" end
  if options.patience and run.waited >= options.patience then self.stopped = "patience" end
end

--- An evaluation in one line.
function M.one_line(result)
  local parts = {}
  for _, name in ipairs { "loss", "perplexity", "accuracy", "macro_f1" } do
    if result[name] then parts[#parts + 1] = ("%s %.4g"):format(name, result[name]) end
  end
  return table.concat(parts, ", ") .. (result.private and " (noised)" or "")
end

local function train(run)
  local options, self, trainer = run.options, run.fit, run.trainer
  local every = options.evaluate and (options.evaluate_every and math.ceil(options.evaluate_every) or math.huge)
  local function is_time(step) return every and step > 0 and (step % every == 0 or step == run.to) end
  -- A run that was killed between a step's checkpoint and its evaluation catches up with it.
  if is_time(trainer.steps) and run.curve:lacks_evaluation(trainer.steps) then judge(run, trainer.steps) end
  while not self.stopped and trainer.steps < run.to do
    local report = trainer:step()
    self.report = report
    run.curve:add(report.step, report.row)
    run.line:step(report.row)
    if options.on_step and options.on_step(report) == false then self.stopped = "on_step" end
    if is_time(report.step) and self.stopped ~= "on_step" then judge(run, report.step) end
  end
  -- One that stops elsewhere still says how good it is.
  if options.evaluate and run.evaluated_at ~= trainer.steps and trainer.steps > 0 and self.stopped == "on_step" then
    judge(run, trainer.steps)
    self.stopped = "on_step"
  end
end

--- Trains until a step, and keeps a curve of it.
-- @tparam Trainer trainer
-- @tparam table given see Trainer:fit's options
-- @treturn Fit
function M.fit(trainer, given)
  local ok, steps = pcall(function() return trainer.steps end)
  if not ok or type(steps) ~= "number" then error("Trainer:fit: expected a Trainer (call it with a colon: trainer:fit { … })", 2) end
  local options, fail = check(given, 1)
  local first = package.loaded["moonshard"].dist.rank() == 0
  local to = last_step(trainer, options, fail)
  local self = setmetatable({ evaluations = {}, began_at = steps }, Fit)
  local run = { trainer = trainer, options = options, fit = self, fail = fail, to = to, waited = 0,
    curve = curves.open(trainer, options), line = fit_progress.new(steps, to, first and options.progress ~= false) }
  self.best, run.waited = run.curve:judged(options.metric, is_more_better[options.metric])
  local began = native.launch.clock()
  local good, problem = xpcall(train, function(message) return message end, run)
  run.line:close()
  self.steps, self.seconds, self.folder = trainer.steps, native.launch.clock() - began, run.curve.path
  native.training.curve(trainer, false, false)
  if not good then
    run.curve:fail(tostring(problem))
    error(problem, 0)
  end
  self.stopped = self.stopped or "done"
  run.curve:finish(self)
  run.line:say(tostring(self))
  return self
end

function Fit:__tostring()
  local text = ("%d steps in %.1f s (%s)"):format(self.steps - self.began_at, self.seconds, self.stopped)
  if self.last then text = text .. ": " .. M.one_line(self.last) end
  if self.best then text = text .. ("; best %s %.4g at step %d"):format(self.best.metric, self.best.value, self.best.step) end
  return self.folder and text .. "; " .. self.folder or text
end

return M
