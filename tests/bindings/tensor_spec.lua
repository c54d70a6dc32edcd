--- Tensors as Lua sees them: makers, arithmetic, fields, lifetime, text.
local ms = require "moonshard"

local MiB = 2 ^ 20

--- The elements as one flat list of texts, so that 64-bit values compare too.
local function flat(tensor)
  local texts = {}
  local function walk(value)
    if type(value) == "table" then
      for _, item in ipairs(value) do walk(item) end
    else
      texts[#texts + 1] = tostring(value)
    end
  end
  walk(tensor:tolist())
  return table.concat(texts, " ")
end

local message_of = require("tests.support.support").message_of

describe("tensor makers", function()
  it("zeros, ones and arange have the numbers they are named for", function()
    assert.are.same({ { 0, 0, 0 }, { 0, 0, 0 } }, ms.zeros({ 2, 3 }):tolist())
    assert.are.same({ 1, 1 }, ms.ones({ 2 }):tolist())
    assert.are.same({ 0, 1, 2, 3 }, ms.arange(4):tolist())
  end)

  it("a bare number is a size of one dimension", function()
    assert.are.same({ 3 }, ms.zeros(3).shape)
  end)

  it("nested tables become a tensor of their shape", function()
    local t = ms.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
    assert.are.same({ 2, 3 }, t.shape)
    assert.are.same({ { 1, 2, 3 }, { 4, 5, 6 } }, t:tolist())
    assert.are.equal("float32", t.dtype)
    assert.are.same({ 1, 1, 2 }, ms.tensor({ { { 1, 2 } } }).shape)
  end)

  it("a number becomes a tensor without dimensions", function()
    local t = ms.tensor(2.5)
    assert.are.equal(0, t.dims)
    assert.are.equal(2.5, t:item())
  end)

  it("an empty table becomes an empty tensor", function()
    assert.are.same({ 0 }, ms.tensor({}).shape)
  end)

  it("the same seed gives the same random numbers and another does not", function()
    local a, b, c = ms.randn({ 50 }, 7), ms.randn({ 50 }, 7), ms.randn({ 50 }, 8)
    assert.are.equal(flat(a), flat(b))
    assert.are_not.equal(flat(a), flat(c))
  end)

  it("random numbers have mean 0 and variance 1", function()
    -- 40000 samples: the mean's standard error is 0.005, the variance's 0.007; five of each are allowed.
    local t = ms.randn({ 40000 }, 1, { dtype = "float64" })
    assert.is_true(math.abs(t:mean():item()) < 0.025)
    assert.is_true(math.abs((t * t):mean():item() - 1) < 0.035)
  end)

  it("dtypes are as asked", function()
    for _, dtype in ipairs { "float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "int8", "bool" } do
      assert.are.equal(dtype, ms.ones({ 2 }, { dtype = dtype }).dtype)
    end
  end)

  it("an unknown dtype names the known ones", function()
    assert.matches("dtype: expected one of float32, float64, .*, got 'flaot'", message_of(ms.zeros, { 1 }, { dtype = "flaot" }))
  end)

  it("an unknown option names the nearest", function()
    local message = message_of(ms.zeros, { 1 }, { dtpye = "float32" })
    assert.matches("unknown option 'dtpye'; did you mean 'dtype'%? known: dtype, device", message)
  end)

  it("an unknown device names the known ones", function()
    assert.matches("device: expected auto, cpu, cuda or cuda:N, got 'gpu'", message_of(ms.zeros, { 1 }, { device = "gpu" }))
  end)

  it("negative, fractional and missing sizes are refused with their value", function()
    assert.matches("ms.zeros: expected sizes >= 0, got %-1", message_of(ms.zeros, { 2, -1 }))
    assert.matches("ms.zeros: argument 1: expected a whole number %(sizes%), got 1.5", message_of(ms.zeros, 1.5))
    assert.matches("ms.zeros: argument 1: expected a list of sizes, e.g. {2, 3}, got nothing", message_of(ms.zeros))
    assert.matches("fits this machine's", message_of(ms.zeros, { 2 ^ 30, 2 ^ 30 }), 1, true)
    assert.matches("ms.arange: expected n >= 0, got %-2", message_of(ms.arange, -2))
  end)

  it("ragged rows and words in a table are refused", function()
    assert.matches("ms.tensor: expected rows of equal length and depth", message_of(ms.tensor, { { 1, 2 }, { 3 } }))
    assert.matches("ms.tensor: expected rows of equal length and depth", message_of(ms.tensor, { 1, { 2 } }))
    assert.matches("ms.tensor: expected numbers in the table, got string", message_of(ms.tensor, { "x" }))
    assert.matches("ms.tensor: argument 1: expected a number or a table of numbers, got 'x'", message_of(ms.tensor, "x"))
  end)
end)

describe("tensor arithmetic", function()
  local a, b
  before_each(function()
    a = ms.tensor { { 1, 2 }, { 3, 4 } }
    b = ms.tensor { { 5, 6 }, { 7, 8 } }
  end)

  it("operators work element by element on tensors and numbers", function()
    assert.are.same({ { 6, 8 }, { 10, 12 } }, (a + b):tolist())
    assert.are.same({ { -4, -4 }, { -4, -4 } }, (a - b):tolist())
    assert.are.same({ { 5, 12 }, { 21, 32 } }, (a * b):tolist())
    assert.are.same({ { 0.5, 1 }, { 1.5, 2 } }, (a / 2):tolist())
    assert.are.same({ { 3, 4 }, { 5, 6 } }, (2 + a):tolist())
    assert.are.same({ { 9, 8 }, { 7, 6 } }, (10 - a):tolist())
    assert.are.same({ { 12, 6 }, { 4, 3 } }, (12 / a):tolist())
    assert.are.same({ { -1, -2 }, { -3, -4 } }, (-a):tolist())
  end)

  it("matmul is the matrix product", function()
    assert.are.same({ { 19, 22 }, { 43, 50 } }, a:matmul(b):tolist())
  end)

  it("functions of one tensor", function()
    assert.are.same({ 1, 2, 3 }, ms.tensor({ -1, 2, -3 }):abs():tolist())
    assert.are.same({ 2, 3 }, ms.tensor({ 4, 9 }):sqrt():tolist())
    assert.are.same({ 1 }, ms.tensor({ 0 }):exp():tolist())
    assert.are.same({ 0 }, ms.tensor({ 1 }):log():tolist())
    assert.are.same(a:tolist(), a:clone():tolist())
  end)

  it("reductions over all elements and along a dimension that counts from 1", function()
    assert.are.equal(10, a:sum():item())
    assert.are.same({ 4, 6 }, a:sum(1):tolist())
    assert.are.same({ 3, 7 }, a:sum(2):tolist())
    assert.are.same({ 3, 7 }, a:sum(-1):tolist())
    assert.are.equal(2.5, a:mean():item())
    assert.are.same({ 2, 3 }, a:mean(1):tolist())
    assert.are.equal(4, a:max():item())
    assert.are.same({ 3, 4 }, a:max(1):tolist())
    assert.are.equal(1, a:min():item())
    assert.are.same({ 1, 3 }, a:min(2):tolist())
    assert.are.equal(5, ms.tensor({ 3, 4 }):norm():item())
    assert.are.same({ 5, 13 }, ms.tensor({ { 3, 4 }, { 5, 12 } }):norm(2):tolist())
  end)

  it("a dimension out of range is named with the range", function()
    assert.matches("Tensor:sum: expected a dimension from 1 to 2, got 3", message_of(a.sum, a, 3))
    assert.matches("Tensor:sum: expected a dimension from 1 to 2, got 0", message_of(a.sum, a, 0))
  end)

  it("reshape, transpose and select", function()
    assert.are.same({ 1, 2, 3, 4 }, a:reshape(4):tolist())
    assert.are.same({ 1, 4 }, a:reshape(1, 4).shape)
    assert.are.same({ 4, 1 }, a:reshape({ -1, 1 }).shape)
    assert.are.same({ { 1, 3 }, { 2, 4 } }, a:transpose():tolist())
    assert.are.same({ { 1, 3 }, { 2, 4 } }, a:transpose(1, 2):tolist())
    assert.are.same({ 3, 4 }, a:select(1, 2):tolist())
    assert.are.same({ 2, 4 }, a:select(2, 2):tolist())
    assert.matches("Tensor:select: expected a position from 1 to 2, got 3", message_of(a.select, a, 1, 3))
  end)

  it("item asks for one element", function()
    assert.matches("Tensor:item: expected a tensor of one element, got 4", message_of(a.item, a))
  end)

  it("to changes the number format", function()
    assert.are.equal("float64", a:to("float64").dtype)
    assert.are.same({ 1, 2 }, ms.tensor({ 1.7, 2.2 }):to("int64"):tolist())
    assert.matches("dtype: expected one of .*, got 'float'", message_of(a.to, a, "float"))
  end)

  it("shapes that do not fit are LibTorch's error without its C++ stack", function()
    local message = message_of(function() return ms.ones { 2 } + ms.ones { 3 } end)
    assert.matches("libtorch: ", message, 1, true)
    assert.is_nil(message:find("frame #", 1, true))
  end)

  it("a wrong operand is named with what it is", function()
    assert.matches("Tensor:add: argument 2: expected a number %(a Tensor or a number%), got 'x'", message_of(a.add, a, "x"))
  end)
end)

describe("whole numbers", function()
  it("int64 literals beyond 2^53 survive or are refused, never rounded", function()
    local ok, t = pcall(ms.tensor, { 9007199254740993LL }, { dtype = "int64" })
    if ok then assert.are.equal("9007199254740993LL", tostring(t:item())) end
    ok, t = pcall(ms.tensor, -9223372036854775807LL, { dtype = "int64" })
    if ok then assert.are.equal("-9223372036854775807LL", tostring(t:item())) end
  end)

  it("item and tolist of an int64 beyond 2^53 give LuaJIT's 64-bit values", function()
    local t = ms.tensor({ 2 ^ 52 }, { dtype = "int64" })
    t = t + t
    t = t + t
    assert.are.equal("int64", t.dtype)
    assert.are.equal("18014398509481984LL", tostring(t:item()))
    assert.are.equal("18014398509481984LL", tostring(t:tolist()[1]))
  end)

  it("an int64 tensor and a whole number make an int64 tensor, with all digits", function()
    local t = ms.tensor({ 16777217 }, { dtype = "int64" }) + 1
    assert.are.equal(16777218, t:item())
    assert.are.equal("int64", t.dtype)
    assert.are.equal(16777217 * 3, (ms.tensor({ 16777217 }, { dtype = "int64" }) * 3):item())
  end)

  it("an int64 tensor and a fraction make fractions", function()
    assert.are.equal(2.5, (ms.tensor({ 2 }, { dtype = "int64" }) + 0.5):item())
  end)

  it("small int64 values come back as plain numbers", function()
    assert.are.equal("number", type(ms.tensor({ 5 }, { dtype = "int64" }):item()))
  end)

  it("a double beyond float32 is not rounded in a float64 tensor", function()
    assert.are.equal(0.1, ms.tensor({ 0.1 }, { dtype = "float64" }):item())
    assert.are.equal(1.1, (ms.tensor({ 1 }, { dtype = "float64" }) + 0.1):item())
  end)
end)

describe("tensor fields", function()
  local t = ms.ones({ 2, 3 }, { dtype = "float64" })

  it("shape, dtype, device, bytes, dims and numel", function()
    assert.are.same({ 2, 3 }, t.shape)
    assert.are.equal("float64", t.dtype)
    assert.are.equal("cpu", t.device)
    assert.are.equal(48, t.bytes)
    assert.are.equal(2, t.dims)
    assert.are.equal(6, t.numel)
    assert.is_false(t.freed)
  end)

  it("another name is an error that lists the fields", function()
    local message = message_of(function() return t.shpae end)
    assert.matches("Tensor: expected a field (shape, dtype, device, bytes, dims, numel, freed) or a method, got 'shpae'", message, 1, true)
  end)

  it("assignment is refused", function()
    assert.matches("read%-only", message_of(function() t.shape = { 1 } end))
  end)

  it("the shape is a copy: writing to it changes nothing", function()
    t.shape[1] = 99
    assert.are.same({ 2, 3 }, t.shape)
  end)
end)

describe("tensor lifetime", function()
  local function live() return ms.memory().lua_tensor_bytes end

  before_each(function()
    collectgarbage()
    collectgarbage()
  end)

  it("free gives the memory back at once and may be called twice", function()
    local before, host = live(), ms.memory().cpu_allocated_bytes
    local t = ms.zeros { MiB }
    assert.are.equal(before + 4 * MiB, live())
    assert.are.equal(host + 4 * MiB, ms.memory().cpu_allocated_bytes)
    t:free()
    t:free()
    assert.are.equal(before, live())
    assert.are.equal(host, ms.memory().cpu_allocated_bytes)
    assert.is_true(t.freed)
    assert.are.equal("Tensor (freed)", tostring(t))
  end)

  it("use after free says so, for methods, operators and fields", function()
    local t = ms.ones { 2 }
    t:free()
    local wanted = "expected a tensor, got one that was freed"
    assert.matches("Tensor:sum: " .. wanted, message_of(t.sum, t), 1, true)
    assert.matches(wanted, message_of(function() return t + 1 end), 1, true)
    assert.matches(wanted, message_of(function() return 1 - t end), 1, true)
    assert.matches(wanted, message_of(function() return t.shape end), 1, true)
    assert.matches(wanted, message_of(function() return ms.ones({ 2 }):matmul(t) end), 1, true)
  end)

  it("a clone outlives the tensor it was made from", function()
    local t = ms.ones { 2 }
    local copy = t:clone()
    t:free()
    assert.are.equal(2, copy:sum():item())
  end)

  it("a scope frees what was made in it", function()
    local before, kept = live(), nil
    ms.scope(function() kept = ms.zeros { MiB } + 1 end)
    assert.are.equal(before, live())
    assert.is_true(kept.freed)
  end)

  it("a scope keeps what it returns", function()
    local t = ms.scope(function()
      local scratch = ms.ones { 3 }
      return scratch * 2
    end)
    assert.are.equal(6, t:sum():item())
  end)

  it("a scope keeps tensors in returned tables, also nested ones", function()
    local result = ms.scope(function() return { a = ms.ones { 1 }, list = { { ms.ones { 2 } } } } end)
    assert.are.equal(1, result.a:sum():item())
    assert.are.equal(2, result.list[1][1]:sum():item())
  end)

  it("a scope keeps tensors twelve tables deep", function()
    local result = ms.scope(function()
      local top = {}
      local inner = top
      for _ = 1, 12 do
        inner.next = {}
        inner = inner.next
      end
      inner.tensor = ms.ones { 2 }
      return top
    end)
    for _ = 1, 12 do result = result.next end
    assert.is_false(result.tensor.freed)
  end)

  it("a scope returns everything its function returns", function()
    local a, b, c = ms.scope(function() return 1, ms.ones { 2 }, "three" end)
    assert.are.equal(1, a)
    assert.is_not_nil(b)
    assert.are.equal(2, b:sum():item())
    assert.are.equal("three", c)
  end)

  it("a scope leaves tensors alone that were made before it", function()
    local t = ms.ones { 2 }
    ms.scope(function() return t + 1 end)
    assert.is_false(t.freed)
  end)

  it("a scope frees when its function raises", function()
    local before = live()
    local kept
    assert.is_false((pcall(ms.scope, function()
      kept = ms.zeros { MiB }
      error("stop")
    end)))
    assert.is_true(kept.freed)
    assert.are.equal(before, live())
  end)

  it("what an inner scope returns belongs to the outer one", function()
    local inner
    ms.scope(function() inner = ms.scope(function() return ms.ones { 2 } end) end)
    assert.is_true(inner.freed)
  end)

  it("garbage never holds more than 200 MiB", function()
    local highest = 0
    for _ = 1, 200 do
      local t = ms.zeros { 2 * MiB } -- 8 MiB
      assert(t.numel == 2 * MiB)
      highest = math.max(highest, ms.memory().lua_tensor_bytes)
    end
    assert.is_true(highest < 200 * MiB, ("held %.0f MiB"):format(highest / MiB))
  end)

  it("garbage of operators never holds more than 200 MiB either", function()
    local highest, total = 0, ms.zeros { 2 * MiB }
    for _ = 1, 100 do
      total = total + 1
      highest = math.max(highest, ms.memory().cpu_allocated_bytes)
    end
    assert.are.equal(100, total:max():item())
    assert.is_true(highest < 200 * MiB, ("held %.0f MiB"):format(highest / MiB))
  end)
end)

describe("tensor text", function()
  it("has type, dtype, shape, device, bytes and the range of values", function()
    local text = tostring(ms.tensor { { 1, 2 }, { 3, 6 } })
    assert.matches("^Tensor float32 %[2x2%] cpu 16 bytes, min 1 mean 3 max 6\n", text)
    assert.matches("\n%[%[1, 2%],\n %[3, 6%]%]$", text)
  end)

  it("long rows and columns are clipped to their corners", function()
    assert.are.equal("[0, 1, 2, ..., 97, 98, 99]", tostring(ms.arange(100)):match("\n(.*)$"))
    local text = tostring(ms.arange(10000):reshape(100, 100))
    assert.is_true(#text < 400, text)
    assert.matches("[0, 1, 2, ..., 97, 98, 99]", text, 1, true)
    assert.matches("9997, 9998, 9999]]", text, 1, true)
    local _, dots = text:gsub("\n %.%.%.", "")
    assert.are.equal(1, dots)
  end)

  it("six elements are shown whole, seven are clipped", function()
    assert.are.equal("[0, 1, 2, 3, 4, 5]", tostring(ms.arange(6)):match("\n(.*)$"))
    assert.are.equal("[0, 1, 2, ..., 4, 5, 6]", tostring(ms.arange(7)):match("\n(.*)$"))
  end)

  it("whole numbers have all their digits", function()
    assert.matches("\n%[123456789%]$", tostring(ms.tensor({ 123456789 }, { dtype = "int64" })))
  end)

  it("empty tensors and tensors without data have no range", function()
    assert.are.equal("Tensor float32 [0x3] cpu 0 bytes", tostring(ms.zeros { 0, 3 }))
    assert.are.equal("Tensor float32 [2] meta 8 bytes", tostring(ms.zeros({ 2 }, { device = "meta" })))
  end)

  it("not-a-number and infinities are shown", function()
    assert.matches("nan", tostring(ms.tensor { 0 / 0, 1 }))
    assert.matches("%-?inf", tostring(ms.tensor { math.huge, 1 }))
  end)
end)
