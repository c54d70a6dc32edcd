--- Model:generate and Trainer:generate: what a model puts behind prompts, as text or as ids.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local Generation = {}
Generation.__index = Generation
local M = { class = Generation }

-- Options of the runtime, then those that are read here.
local passed_on = { "max_new_tokens", "temperature", "top_p", "top_k", "seed", "batch_size", "graph" }
M.options = lists.extend({ "prompt", "tokenizer", "stop", "on_token", "stream" }, passed_on)

local MISSING = "\239\191\189"  -- U+FFFD: an id that the tokenizer does not have

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

--- Folders that a model may come from, its adapter's first.
local function folders_of(model)
  local options = model.options
  return lists.select({ options.adapter, options.weights, options.model }, function(path) return path ~= "" end)
end

local function tokenizer_of(model, given, fail)
  if type(given) == "userdata" then return given end
  if given ~= nil and type(given) ~= "string" then
    fail("option 'tokenizer': expected a Tokenizer, a path or \"bytes\", got %s", type(given))
  end
  local ms = require "moonshard"
  if given then return ms.tokenizer(given) end
  for _, folder in ipairs(folders_of(model)) do
    if exists(folder .. "/tokenizer.json") then return ms.tokenizer(folder) end
  end
  return nil
end

--- Ids that end a text by the files of the model's folder, as transformers has them.
local function ids_of_folder(model)
  for _, folder in ipairs(folders_of(model)) do
    for _, name in ipairs { "generation_config.json", "config.json" } do
      local path = folder .. "/" .. name
      local config = exists(path) and native.records.read_json(path) or {}
      local ids = type(config) == "table" and config.eos_token_id
      if type(ids) == "number" then return { ids } end
      if type(ids) == "table" then return ids end
    end
  end
  return nil
end

local function stop_ids(model, tokenizer, given, fail)
  if given == false then return {} end
  if given == nil then
    local ids = ids_of_folder(model) or tokenizer and { tokenizer:end_of_text() } or {}
    return lists.select(ids, function(id) return id >= 0 and id < model.options.vocab_size end)
  end
  return lists.map(type(given) == "table" and given or { given }, function(stop)
    if type(stop) == "number" then return stop end
    if not tokenizer then fail("option 'stop': expected a tokenizer beside the text '%s', got none", tostring(stop)) end
    local id = type(stop) == "string" and tokenizer:id(stop)
    if not id then
      -- A byte-level tokenizer writes blanks and line breaks in letters of its own: ask it for the text.
      local ids = type(stop) == "string" and tokenizer:encode(stop, { special_tokens = false }) or {}
      if #ids ~= 1 then fail("option 'stop': expected ids, or texts of one token each, got '%s' of %d tokens", tostring(stop), #ids) end
      id = ids[1]
    end
    return id
  end)
end

--- Lists of ids, and whether one prompt was given alone.
local function prompts_of(model, tokenizer, given, fail)
  local is_alone = type(given) ~= "table" or type(given[1]) == "number"
  local expected = "option 'prompt': expected a text, a list of ids, or a list of either, got %s"
  if given == nil then fail(expected, "nothing") end
  if type(given) == "table" and #given == 0 then fail(expected, "an empty table") end
  return lists.map(is_alone and { given } or given, function(prompt)
    if type(prompt) == "table" then return prompt end
    if type(prompt) ~= "string" then fail(expected, type(prompt)) end
    if not tokenizer then
      fail("option 'tokenizer': expected one beside prompts of text, got none, and '%s' is no folder with a tokenizer.json; "
        .. "tokenizer = \"bytes\" is that of ms.data.text", model.options.model)
    end
    local ids = tokenizer:encode(prompt)
    if #ids == 0 then fail("option 'prompt': expected a text of at least one token, got '%s'", prompt) end
    return ids
  end), is_alone
end

local function text_of(tokenizer, size, ids)
  local parts, run = {}, {}
  local function flush()
    if #run > 0 then parts[#parts + 1] = tokenizer:decode(run, { skip_special = true }) end
    run = {}
  end
  for _, id in ipairs(ids) do
    if id < size then
      run[#run + 1] = id
    else
      flush()
      parts[#parts + 1] = MISSING
    end
  end
  flush()
  return table.concat(parts)
end

--- How many bytes at the end of a text begin a character that is not complete yet.
local function begun_bytes(text)
  for back = 1, math.min(3, #text) do
    local byte = text:byte(-back)
    if byte >= 0xC0 then return back < (byte >= 0xF0 and 4 or byte >= 0xE0 and 3 or 2) and back or 0 end
    if byte < 0x80 then return 0 end
  end
  return 0
end
M.begun_bytes = begun_bytes

--- Makes the function that the runtime tells of each token: it turns ids into pieces of text.
local function listener(tokenizer, on_token, write)
  if not on_token and not write then return nil end
  local rows, size = {}, tokenizer and tokenizer:vocab_size()
  return function(prompt, id)
    local piece
    if tokenizer then
      local row = rows[prompt] or { ids = {}, told = 0 }
      rows[prompt] = row
      row.ids[#row.ids + 1] = id
      local text = text_of(tokenizer, size, row.ids)
      local upto = #text - begun_bytes(text)
      piece = text:sub(row.told + 1, upto)
      row.told = math.max(row.told, upto)
    end
    if write and piece and piece ~= "" then write(piece) end
    if on_token then on_token(prompt, id, piece) end
  end
end

--- Where pieces of text go while they are made: at a prompt, or when asked for.
local function writer(options, is_alone, tokenizer, fail)
  local repl = package.loaded["moonshard.repl"]
  local session = repl and repl.current
  if options.stream == nil and not (session and is_alone and tokenizer) or options.stream == false then return nil end
  if not is_alone then fail("option 'stream': expected one prompt, whose text is shown as it comes, got a list") end
  if not tokenizer then fail("option 'stream': expected a tokenizer, got none") end
  if session then return session.host.out end
  return function(piece)
    io.stdout:write(piece)
    io.stdout:flush()
  end
end

function Generation:__tostring()
  local lines = {}
  if not self.streamed then
    for i, ids in ipairs(self.ids) do
      lines[#lines + 1] = self.texts and self.texts[i] or table.concat(ids, " ")
    end
  end
  local stopped = #lists.select(self.ended, function(why) return why == "stop" end)
  lines[#lines + 1] = ("(%d tokens behind %d %s, %d ended by a stop token; %.3g tokens/s)"):format(self.new_tokens, #self.ids,
    #self.ids == 1 and "prompt" or "prompts", stopped, self.tokens_per_second)
  return table.concat(lines, "\n")
end

--- Continues prompts token by token, with a KV cache.
-- @param subject a Model, or a Trainer: its model, also in parts over ranks; all ranks together
-- @tparam table given prompt: text, list of ids, or list of either; tokenizer, stop, on_token, stream; max_new_tokens, temperature, top_p,
-- top_k, seed, batch_size, graph
-- @treturn Generation
function M.generate(subject, given)
  if type(given) == "string" then given = { prompt = given } end
  local options = guard.check("generate", given, M.options, 2)
  local function fail(...) error("generate: " .. (...):format(select(2, ...)), 3) end
  local ok, model = pcall(function() return subject.model end)
  if not ok then model = subject end
  if type(model) ~= "userdata" then
    fail("expected a Model or a Trainer (call it with a colon: model:generate {…}), got %s", type(subject))
  end
  if options.on_token ~= nil and type(options.on_token) ~= "function" then
    fail("option 'on_token': expected a function, got %s", type(options.on_token))
  end
  local tokenizer = tokenizer_of(model, options.tokenizer, fail)
  local prompts, is_alone = prompts_of(model, tokenizer, options.prompt, fail)
  local write = writer(options, is_alone, tokenizer, fail)
  local plain = { stop = stop_ids(model, tokenizer, options.stop, fail) }
  for _, name in ipairs(passed_on) do plain[name] = options[name] end
  local fine, result = pcall(native.generation.run, subject, prompts, plain, listener(tokenizer, options.on_token, write))
  if write then write "\n" end
  if not fine then error(result, type(result) == "string" and 2 or 0) end
  if tokenizer then
    local size = tokenizer:vocab_size()
    result.texts = lists.map(result.ids, function(ids) return text_of(tokenizer, size, ids) end)
    result.text = is_alone and result.texts[1] or nil
  end
  result.streamed = write ~= nil
  result.seconds = result.prefill_seconds + result.decode_seconds
  result.tokens_per_second = result.new_tokens / math.max(result.seconds, 1e-9)
  return setmetatable(result, Generation)
end

return M
