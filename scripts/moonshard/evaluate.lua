--- ms.evaluate: a model on a whole dataset, and what is known of its figures.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local Evaluation = {}
Evaluation.__index = Evaluation
local M = { class = Evaluation }

local percent = { accuracy = true, macro_f1 = true, micro_f1 = true }
local order = { "loss", "perplexity", "accuracy", "macro_f1", "micro_f1" }

local function shown(name, value)
  return percent[name] and ("%.2f %%"):format(100 * value) or ("%.4g"):format(value)
end

--- "87.80 % (84.6 to 90.4)".
local function with_interval(name, value, interval)
  if not interval then return shown(name, value) end
  local factor, unit = percent[name] and 100 or 1, percent[name] and "%.1f" or "%.4g"
  return ("%s (95 %%: %s to %s)"):format(shown(name, value), unit:format(factor * interval.low), unit:format(factor * interval.high))
end

function Evaluation:__tostring()
  local lines = { ("%s: %d samples%s%s"):format(self.task, self.samples, self.tokens and (", %d tokens"):format(self.tokens) or "",
    self.not_finite and (", %d without a finite loss"):format(self.not_finite) or "") }
  for _, name in ipairs(order) do
    if self[name] then lines[#lines + 1] = ("  %-11s %s"):format(name, with_interval(name, self[name], (self.intervals or {})[name])) end
  end
  if self.classes and #self.classes <= 50 then
    lines[#lines + 1] = text_table.format({ "class", "samples", "predicted", "precision", "recall", "F1" },
      lists.map(self.classes, function(class, i)
        return { class.label or tostring(i - 1), class.count, class.predicted, class.precision, class.recall, class.f1 }
      end))
  end
  lines[#lines + 1] = "  " .. self.privacy
  return table.concat(lines, "\n")
end

--- Names of the classes, where the dataset has them.
local function labels_of(data)
  if type(data) ~= "userdata" then return {} end
  local facts = data:facts()
  return type(facts) == "table" and type(facts.labels) == "table" and facts.labels or {}
end

--- Forward passes over all samples in order, each exactly once, without gradients.
-- @param subject a Model, or a Trainer: its model, also in parts over ranks; all ranks together
-- @param data a Dataset, or a list of batches
-- @tparam[opt] table options batch_size, intervals, public, noise_multiplier, loss_bound
-- @treturn Evaluation
function M.evaluate(subject, data, options)
  local ok, result = pcall(native.training.evaluate, subject, data, options)
  if not ok then error(result, type(result) == "string" and 2 or 0) end
  local labels = labels_of(data)
  for i, class in ipairs(result.classes or {}) do class.label = labels[i] end
  return setmetatable(result, Evaluation)
end

return M
