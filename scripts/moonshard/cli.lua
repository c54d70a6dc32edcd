--- Verbs of the program that are written in Lua. Each function takes the words after the verb and may
-- return an exit code. Mistakes in those words are the user's, not code: they end in one line and code 2.
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"
local usage = require "moonshard.usage"

local M = {}

--- A verb whose fail() becomes a line on stderr and exit code 2; other errors go on as they are.
local function verb(run)
  return function(...)
    local ok, result = pcall(run, ...)
    if ok then return result end
    if not usage.is_mistake(result) then error(result, 0) end
    io.stderr:write("moonshard: ", result.text, "\n")
    return 2
  end
end

local function module_table() return package.loaded["moonshard"] end

--- Words of a verb that knows --json and nothing else.
local function wants_json(name_of_verb, words)
  for _, word in ipairs(words) do
    local name = word:match("^%-%-([^=]+)")
    if not name then usage.fail("%s: expected no more words, got '%s'", name_of_verb, word) end
    if name ~= "json" then
      usage.fail_unknown(name_of_verb, ("option '--%s'"):format(name), name, { "json" }, function(known) return "--" .. known end)
    end
  end
  return #words > 0
end

local function print_list(list, as_json, columns, row_of)
  if as_json then
    io.write(native.records.to_json(list))
    return
  end
  local rows = {}
  for i, item in ipairs(list) do rows[i] = row_of(item) end
  print(text_table.format(columns, rows))
end

local function with_unit(number, units)
  local unit = 1
  while number >= 1000 and unit < #units do
    number, unit = number / 1000, unit + 1
  end
  return ("%.4g %s"):format(number, units[unit])
end

--- moonshard models [--json]
M.models = verb(function(...)
  local as_json = wants_json("models", { ... })
  local columns = { "model", "task", "parameters", "FLOPs/token", "GiB at batch 1", "batch", "tokens", "" }
  print_list(module_table().models(), as_json, columns, function(model)
    return {
      model.name, model.task, with_unit(model.num_parameters, { "", "k", "M", "G" }),
      with_unit(model.flops_per_token, { "", "k", "M", "G", "T" }), ("%.3g"):format(model.memory_batch_1_bytes / 2 ^ 30),
      model.batch_size, model.seq_length, model.doc,
    }
  end)
  if not as_json then
    print("\nFLOPs: forward and backward of one token at the preset's length. Memory: parameters, gradients and activations of a")
    print("plain step of one sample in float32, without optimizer state. batch and tokens are what an experiment takes when it")
    print("names none. Every size is an option: moonshard profile --help.")
  end
end)

--- Marks what an engine is verified on: one row per layer kind, model, way to train and number format.
local function print_support(engines)
  local names, rows = { "" }, {}
  for _, engine in ipairs(engines) do names[#names + 1] = engine.name end
  for _, group in ipairs { { "layers", "layer" }, { "models", "model" }, { "options", "with" }, { "dtypes", "in" } } do
    local seen, order = {}, {}
    for _, engine in ipairs(engines) do
      for _, item in ipairs(engine[group[1]] or {}) do
        if not seen[item] then order[#order + 1] = item end
        seen[item] = seen[item] or {}
        seen[item][engine.name] = true
      end
    end
    for _, item in ipairs(order) do
      local row = { group[2] .. " " .. item }
      for _, engine in ipairs(engines) do row[#row + 1] = seen[item][engine.name] and "yes" or "-" end
      rows[#rows + 1] = row
    end
  end
  print(text_table.format(names, rows))
end

--- moonshard engines [--json]
M.engines = verb(function(...)
  local as_json = wants_json("engines", { ... })
  local engines = module_table().engines()
  print_list(engines, as_json, { "engine", "private", "also called", "" }, function(engine)
    return { engine.name, engine.private and "yes" or "no", table.concat(engine.aliases, ", "), engine.doc }
  end)
  if as_json then return end
  print("\nVerified against per-sample gradients (moonshard verify runs these cells; - is where an option means nothing to an engine):\n")
  print_support(engines)
end)

--- moonshard plot DIR [FIGURE…] [flags]
M.plot = verb(function(...) return require("moonshard.cli.plot")(...) end)

--- moonshard sweep NAME|FILE.lua [flags] [flags of the script]
M.sweep = verb(function(...) return require("moonshard.sweep.command").run(...) end)

--- moonshard compare DIR|RESULT.json… [flags]
M.compare = verb(function(...) return require("moonshard.cli.compare")(...) end)

--- moonshard privacy epsilon|calibrate [flags]
M.privacy = verb(function(...) return require("moonshard.cli.privacy")(...) end)

--- moonshard export DIR --format F [flags]
M.export = verb(function(...) return require("moonshard.cli.export")(...) end)

return M
