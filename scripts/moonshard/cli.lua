--- Verbs of the program that are written in Lua. Each function takes the words after the verb and may
-- return an exit code. Mistakes in those words are the user's, not code: they end in one line and code 2.
local guard = require "moonshard.options_guard"
local native = require "moonshard.native"
local runs = require "moonshard.runs"
local sweep = require "moonshard.sweep"
local text_table = require "moonshard.text_table"

local M = {}

local UsageMistake = {}
local function fail(...) error(setmetatable({ text = string.format(...) }, UsageMistake), 0) end

--- A verb whose fail() becomes a line on stderr and exit code 2; other errors go on as they are.
local function verb(run)
  return function(...)
    local ok, result = pcall(run, ...)
    if ok then return result end
    if getmetatable(result) ~= UsageMistake then error(result, 0) end
    io.stderr:write("moonshard: ", result.text, "\n")
    return 2
  end
end

local function module_table() return package.loaded["moonshard"] end

--- Splits words into flags that take a value, flags that take none, and the rest.
local function parse(name_of_verb, words, with_value, without_value, most_words)
  local flags, rest, i = {}, {}, 1
  local known = {}
  for _, list in ipairs { with_value, without_value } do
    for _, name in ipairs(list) do known[#known + 1] = name end
  end
  local function is_in(list, name)
    for _, item in ipairs(list) do
      if item == name then return true end
    end
  end
  while i <= #words do
    local name, value = words[i]:match("^%-%-([^=]+)=?(.*)$")
    if not name then
      rest[#rest + 1] = words[i]
    elseif is_in(without_value, name) then
      flags[name] = true
    elseif is_in(with_value, name) then
      if not words[i]:find("=", 1, true) then
        i = i + 1
        value = words[i]
        if value == nil then fail("%s: option '--%s': expected a value, got the end of the line", name_of_verb, name) end
      end
      flags[name] = flags[name] or {}
      table.insert(flags[name], value)
    else
      local near = guard.nearest(name, known)
      fail("%s: unknown option '--%s'%s known: --%s", name_of_verb, name, near and ("; did you mean '--%s'?"):format(near) or ";",
        table.concat(known, ", --"))
    end
    i = i + 1
  end
  if #rest > most_words then fail("%s: expected no more words, got '%s'", name_of_verb, rest[most_words + 1]) end
  return flags, rest
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
  local flags = parse("models", { ... }, {}, { "json" }, 0)
  local columns = { "model", "task", "parameters", "FLOPs/token", "GiB at batch 1", "batch", "tokens", "" }
  print_list(module_table().models(), flags.json, columns, function(model)
    return {
      model.name, model.task, with_unit(model.num_parameters, { "", "k", "M", "G" }),
      with_unit(model.flops_per_token, { "", "k", "M", "G", "T" }), ("%.3g"):format(model.memory_batch_1_bytes / 2 ^ 30),
      model.batch_size, model.seq_length, model.doc,
    }
  end)
  if not flags.json then
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
  local flags = parse("engines", { ... }, {}, { "json" }, 0)
  local engines = module_table().engines()
  print_list(engines, flags.json, { "engine", "private", "also called", "" }, function(engine)
    return { engine.name, engine.private and "yes" or "no", table.concat(engine.aliases, ", "), engine.doc }
  end)
  if flags.json then return end
  print("\nVerified against per-sample gradients (moonshard verify runs these cells; - is where an option means nothing to an engine):\n")
  print_support(engines)
end)

--- moonshard plot DIR [FIGURE]
M.plot = verb(function(...)
  local _, rest = parse("plot", { ... }, {}, {}, 2)
  if not rest[1] then fail("plot: expected a run folder, got nothing; give one like results/run_YYYYMMDD_HHMMSS") end
  local figures = require("moonshard.plots").figures
  if rest[2] and rest[2] ~= "all" and not (" " .. table.concat(figures, " ") .. " "):find(" " .. rest[2] .. " ", 1, true) then
    local near = guard.nearest(rest[2], figures)
    fail("plot: expected 'all' or one of %s, got '%s'%s", table.concat(figures, ", "), rest[2],
      near and ("; did you mean '%s'?"):format(near) or "")
  end
  local ok, results = pcall(runs.load, rest[1])
  if not ok then
    io.stderr:write("moonshard: ", tostring(results), "\n")
    return 1
  end
  local paths = results:plot(rest[2] or "all")
  if #paths == 0 then
    io.stderr:write(("moonshard: plot: no point in %s has status ok; nothing to draw\n"):format(rest[1]))
    return 1
  end
  for _, path in ipairs(paths) do print(path) end
  return 0
end)

--- "64" as a number, "true" as a boolean, all else as text.
local function typed(text)
  if text == "true" then return true end
  if text == "false" then return false end
  local number = tonumber(text)
  if number and text:match("^%-?[1-9]%d+$") and ("%.0f"):format(number) ~= text then
    fail("sweep: option '--set': expected a whole number up to 2^53, got %s; a Lua number would lose digits", text)
  end
  return number or text
end

local function is_option(key)
  for _, option in ipairs(module_table().options()) do
    if option.name == key then return true end
    for _, alias in ipairs(option.aliases) do
      if alias == key then return true end
    end
  end
  return false
end

local function pairs_of(list, flag)
  local result = {}
  for _, text in ipairs(list or {}) do
    local key, value = text:match("^([^=]+)=(.*)$")
    if not key then fail("sweep: option '--%s': expected KEY=VALUE, got '%s'", flag, text) end
    key = key:gsub("-", "_")
    if not is_option(key) then
      local known = module_table().option_names()
      local near = guard.nearest(key, known)
      fail("sweep: option '--%s': unknown option '%s'%s known: %s", flag, key, near and ("; did you mean '%s'?"):format(near) or ";",
        table.concat(known, ", "))
    end
    result[key] = value
  end
  return result
end

local function find_script(name)
  if native.launch.exists(name) and name:match("%.lua$") then return name end
  local path = ("%s/scripts/sweep/%s.lua"):format(native.launch.shared_files(), name)
  if native.launch.exists(path) then return path end
  fail("sweep: expected a script, got '%s'; give a path that ends in .lua or a name from scripts/sweep", name)
end

--- moonshard sweep NAME|FILE.lua [--set K=V] [--only K=GLOB] [--resume DIR] [--dry-run]
M.sweep = verb(function(...)
  local flags, rest = parse("sweep", { ... }, { "set", "only", "resume" }, { "dry-run" }, math.huge)
  if not rest[1] then fail("sweep: expected a script, got nothing; moonshard sweep --help") end
  local set = pairs_of(flags.set, "set")
  for key, value in pairs(set) do sweep.overrides.set[key] = typed(value) end
  sweep.overrides.only = pairs_of(flags.only, "only")
  sweep.overrides.resume = flags.resume and flags.resume[#flags.resume]
  sweep.overrides.dry_run = flags["dry-run"] or false
  local chunk, reason = loadfile(find_script(rest[1]))
  if not chunk then fail("%s", reason) end
  chunk(unpack(rest, 2))
  return sweep.some_failed and 5 or 0
end)

return M
