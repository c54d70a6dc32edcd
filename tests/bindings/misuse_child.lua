--- Runs in a child of misuse_spec.lua: calls the functions of one group with hostile arguments.
-- Arguments: group, then "list" for the names alone, else the number of the first case and the functions
-- to leave out. Prints, unbuffered, one line per case before it runs ("call N function <tab> input") and a
-- line for every finding ("bad reason"), so that the last line of a child that died names what killed it.
local ffi = require "ffi"
local ms = require "moonshard"
local native = package.loaded["moonshard.native"]
io.stdout:setvbuf("no")

local group, first_case = arg[1], tonumber(arg[2])
local left_out = {}
for i = 3, #arg do left_out[arg[i]] = true end

-- ---- objects, made anew for every call ---------------------------------------------------------

local function tiny_model() return ms.model("linear-tiny", { hidden_dim = 8, num_layers = 1, device = "cpu" }) end
local model = tiny_model()
local function tensor() return ms.tensor { { 1, 2 }, { 3, 4 } } end
local function freed_tensor()
  local t = tensor()
  t:free()
  return t
end
local function trainer()
  return ms.trainer { model = model, data = ms.data.synthetic { batch_size = 2 } }
end
local function closed_trainer()
  local t = trainer()
  t:close()
  return t
end
local function data() return ms.data.synthetic { model = model, batch_size = 2 } end
ms.weights.save("weights.safetensors", { w = tensor(), b = ms.zeros { 2 } })
local function weights() return ms.weights.open "weights.safetensors" end
local function closed_weights()
  local w = weights()
  w:close()
  return w
end
local lines = assert(io.open("labelled.jsonl", "w"))
lines:write('{"text": "a text", "label": 0}\n{"text": "another", "label": 1}\n')
lines:close()
local function dataset() return ms.data.classification { file = "labelled.jsonl", max_length = 4 } end
local function tokenizer() return ms.tokenizer "bytes" end
local folder
local function run_folder()
  if not folder then
    folder = native.records.create(".", "misuse")
    native.records.write_sweep(folder, { name = "misuse", axes = { "mode" }, points = {} })
  end
  return folder
end

-- ---- hostile values ----------------------------------------------------------------------------

local function raise() error("raised by the caller's own function") end
local function circular()
  local t = {}
  for i = 1, 20 do t[i] = t end
  return t
end
local function named_circular()
  local t = { x = 1 }
  t.self = t
  return t
end
local function deep(n)
  local t = {}
  for _ = 1, n do t = { t } end
  return t
end
local function ones_list(n)
  local t = {}
  for i = 1, n do t[i] = 1 end
  return t
end
local struct = ffi.new("struct { int a; double b; }")
local values = {
  { "nil", function() return nil end }, { "true", function() return true end }, { "false", function() return false end },
  { "nan", function() return 0 / 0 end }, { "inf", function() return math.huge end }, { "-inf", function() return -math.huge end },
  { "-1", function() return -1 end }, { "0", function() return 0 end }, { "1", function() return 1 end },
  { "0.5", function() return 0.5 end }, { "2^53+1", function() return 2 ^ 53 + 1 end }, { "-2^53", function() return -2 ^ 53 end },
  { "2^53+2", function() return 2 ^ 53 + 2 end }, { "1e308", function() return 1e308 end }, { "2^31", function() return 2 ^ 31 end },
  { "5LL", function() return 5LL end }, { "least int64", function() return -9223372036854775807LL - 1LL end },
  { "2^63 ULL", function() return 9223372036854775808ULL end }, { "complex", function() return 1i end },
  { "struct", function() return struct end }, { "ffi pointer", function() return ffi.cast("void*", 0) end },
  { "empty text", function() return "" end }, { "text", function() return "x" end }, { "number text", function() return "12" end },
  { "text with zero byte", function() return "a\0b" end }, { "1 MiB text", function() return ("x"):rep(2 ^ 20) end },
  { "format text", function() return "%s%n{}{0}" end }, { "bad UTF-8", function() return "\255\254\128" end },
  { "dots", function() return "../../.." end }, { "slash", function() return "a/b" end },
  { "{}", function() return {} end }, { "list", function() return { 1, 2, 3 } end },
  { "list of texts", function() return { "a", "b" } end },
  { "ragged list", function() return { 1, { 2 }, { { 3 } } } end }, { "mixed table", function() return { 1, x = 2 } end },
  { "sparse list", function() return { [1] = 1, [1000000] = 1 } end }, { "far key", function() return { [2 ^ 31] = 1 } end },
  { "negative keys", function() return { [-1] = 1, [0] = 2, [0.5] = 3 } end },
  { "list of 1e5", function() return ones_list(1e5) end }, { "circular list", circular }, { "circular table", named_circular },
  { "nested 1000 deep", function() return deep(1000) end }, { "nested 60 deep", function() return deep(60) end },
  { "table of functions", function() return { print, raise } end }, { "unknown option", function() return { no_such_option = 1 } end },
  { "1 MiB option name", function() return { [("x"):rep(2 ^ 20)] = 1 } end },
  { "raising __index", function() return setmetatable({}, { __index = raise, __newindex = raise, __tostring = raise }) end },
  { "tensor in a table", function() return { x = tensor() } end },
  { "raising function", function() return raise end }, { "function", function() return function() end end },
  { "coroutine", function() return coroutine.create(raise) end }, { "file", function() return io.stdout end },
  { "proxy", function() return newproxy(true) end }, { "light userdata", function() return native.null end },
  { "tensor", tensor }, { "freed tensor", freed_tensor }, { "model", function() return model end },
  { "trainer", trainer }, { "closed trainer", closed_trainer }, { "weights", weights }, { "closed weights", closed_weights },
  { "data", data }, { "run folder", run_folder }, { "dataset", dataset }, { "tokenizer", tokenizer },
  { "module table", function() return ms end },
}

-- ---- what is called ----------------------------------------------------------------------------

-- Good leading arguments, so that the hostile one also stands second and third.
local leading = {
  ["ms.zeros"] = { { 2 }, {} }, ["ms.ones"] = { { 2 }, {} }, ["ms.randn"] = { { 2 }, 1 }, ["ms.arange"] = { 3, {} },
  ["ms.tensor"] = { { 1, 2 }, {} }, ["ms.model"] = { "linear-tiny", { hidden_dim = 8, num_layers = 1 } }, ["ms.clip"] = { "none", {} },
  ["ms.register_engine"] = { "misuse", { norms = function(_, _, g) return (g * g):sum(2) end } },
  ["ms.register_rule"] = { "misuse", { per_sample = function(_, _, g) return g end } },
  ["ms.verify"] = { { model = "linear-tiny", engine = "none", options = "batch_of_1", dtype = "float64" }, {} },
  ["ms.audit"] = { { engine = "ghost", canaries = 20, trials = 4 }, {} },
  ["ms.weights.save"] = { "saved.safetensors", { w = ms.ones { 2 } } },
  ["ms.document"] = { print, "name" }, ["native.nearest"] = { "x", { "y" } },
  ["launch.run"] = { { "/bin/true" }, "log.txt" }, ["records.create"] = { "made", "name" }, ["records.log_tail"] = { ".", "x" },
}
local no_folder_first = { ["records.create"] = true, ["records.open"] = true, ["records.table"] = true, ["records.log_tail"] = true,
  ["records.to_json"] = true, ["records.summarize"] = true }

-- ms.run without a mistake in its options is a whole experiment. It reads its options as ms.resolve does,
-- which gets all of this; ms.run itself gets what must fail. ms.verify and
-- ms.audit without options run for minutes.
local runs_for_long = {
  ["ms.run"] = { ["nil"] = true, ["{}"] = true },
  ["ms.verify"] = { ["nil"] = true, ["{}"] = true, ["raising __index"] = true },
  ["ms.audit"] = { ["nil"] = true, ["{}"] = true, ["raising __index"] = true },
}

local subjects = {}
local function add(name, call, self)
  if left_out[name] then call = nil end
  subjects[#subjects + 1] = { name = name, call = call, self = self }
end
local function add_table(prefix, functions)
  local names = {}
  for name, value in pairs(functions) do
    if type(value) == "function" then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do add(prefix .. name, functions[name]) end
end
-- What plain Lua can reach: a hidden metatable leaves __gc to the debug library, which is trusted.
local function add_type(prefix, make)
  local object = make()
  local shown = getmetatable(object)
  local real = debug.getmetatable(object)
  local names = {}
  for name, value in pairs(real) do
    if type(value) == "function" and (name ~= "__gc" or rawequal(shown, real)) then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do add(prefix .. name, real[name], make) end
end

if group == "module" then
  add_table("ms.", ms)
  add_table("ms.optim.", ms.optim)
  add_table("ms.data.", ms.data)
  add_table("ms.privacy.", ms.privacy)
  add_table("ms.weights.", ms.weights)
elseif group == "native" then
  add_table("native.", native)
  add_table("records.", native.records)
  add_table("launch.", native.launch)
elseif group == "tensor" then
  add_type("Tensor:", tensor)
else
  add_type("Model:", function() return model end)
  add_type("Trainer:", trainer)
  add_type("Data:", data)
  add_type("Dataset:", dataset)
  add_type("Tokenizer:", tokenizer)
  add_type("Weights:", weights)
  add_type("RunFolder:", run_folder)
end

if arg[2] == "list" then
  for _, subject in ipairs(subjects) do print(subject.name) end
  os.exit(0)
end

-- ---- judging -----------------------------------------------------------------------------------

local unclear = { "json%.exception", "std::", "bad_alloc", "basic_string", "_M_", "filesystem error", "internal error", "stack index %-?%d",
  "sol: ", "C%+%+ exception", "enforce fail", "attempt to", "bad argument #" }

local function judge(subject, ok, message)
  if ok then return end
  if type(message) ~= "string" then return print("bad error of type " .. type(message)) end
  if #message < 8 then return print("bad message '" .. message .. "'") end
  if #message > 4000 then return print("bad message of " .. #message .. " bytes: " .. message:sub(1, 80):gsub("%c", " ")) end
  -- sol2's own words for what no one may call are good enough.
  local may_be_sol = subject.name:match(":new$") or subject.name:match(":__pairs$")
  for _, pattern in ipairs(unclear) do
    if not (may_be_sol and pattern == "sol: ") and message:find(pattern) then
      return print("bad unclear message: " .. message:sub(1, 200):gsub("%c", " "))
    end
  end
end

local case = 0
local function try(subject, input, ...)
  case = case + 1
  if case < first_case or not subject.call then return end
  print(("call %d %s\t%s"):format(case, subject.name, input))
  local results = { pcall(subject.call, ...) }
  judge(subject, results[1], results[2])
  if case % 500 == 0 then
    collectgarbage()
    assert(tostring(tensor():sum():item()) == "10", "the state is not usable any more")
  end
end

for _, subject in ipairs(subjects) do
  local skipped = runs_for_long[subject.name] or {}
  local before = leading[subject.name]
  if not before and subject.name:match("^records%.") and not no_folder_first[subject.name] then before = { run_folder(), "x" } end
  if not skipped["nil"] then try(subject, "()") end
  for _, value in ipairs(values) do
    if not skipped[value[1]] then
      local one, two = value[2](), value[2]()
      try(subject, "(" .. value[1] .. ")", one)
      if subject.self then
        try(subject, "(self, " .. value[1] .. ")", subject.self(), value[2]())
        try(subject, "(self, 1, " .. value[1] .. ")", subject.self(), 1, value[2]())
      else
        try(subject, "(good, " .. value[1] .. ")", before and before[1] or "x", one)
        try(subject, "(good, good, " .. value[1] .. ")", before and before[1] or "x", before and before[2] or "x", two)
      end
    end
  end
end
print(("done %d"):format(case))
