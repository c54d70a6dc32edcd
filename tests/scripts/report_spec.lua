--- report.html: a page that a parser accepts, that loads nothing, and that holds every point, whatever names and records say.
local support = require "tests.support.support"
local ms = require "moonshard"
local again = require "moonshard.report.again"
local fake = require "tests.support.fake_runs"
local figures = require "moonshard.svg.figure"
local html = require "moonshard.html"
local plot_records = require "tests.support.plot_records"
local plots = require "moonshard.plots"
local report = require "moonshard.report"

local folder
before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

local void = { meta = true }

--- A parser that shares nothing with the writer: tags must nest, attributes be quoted, text hold no stray mark.
-- @treturn {table,...} elements: name, attributes as text
-- @treturn string all text
local function parse(page)
  local open, elements, texts, at = {}, {}, {}, #"<!DOCTYPE html>" + 1
  assert.are.equal("<!DOCTYPE html>", page:match("^[^\n]+"))
  while at <= #page do
    local from = page:find("<", at, true) or #page + 1
    local text = page:sub(at, from - 1)
    if open[#open] ~= "style" then
      assert.is_nil(text:find(">", 1, true), "a stray > in: " .. text:sub(1, 200))
      assert.is_nil(text:gsub("&%a+;", ""):gsub("&#%d+;", ""):find("&", 1, true), "a stray & in: " .. text:sub(1, 200))
      texts[#texts + 1] = text
    end
    if from > #page then break end
    local slash, name, attributes, close = page:match('^<(/?)([%a][%w]*)([^<>]*)(>)', from)
    assert.is_truthy(close, "no tag at: " .. page:sub(from, from + 80))
    if slash == "/" then
      assert.are.equal(table.remove(open), name, "closed at: " .. page:sub(math.max(1, from - 80), from + 20))
    else
      local rest = attributes:gsub('%s+[%w-]+="[^"]*"', ""):gsub("%s*/?$", "")
      assert.are.equal("", rest, "attributes of " .. name)
      elements[#elements + 1] = { name = name, attributes = attributes }
      if not void[name] and not attributes:match("/$") then open[#open + 1] = name end
    end
    at = from + #page:match("^[^>]*>", from)
  end
  assert.are.same({}, open)
  return elements, table.concat(texts, "\n")
end

--- Raises where a page would load something or run something.
local function assert_alone(page, elements)
  for _, element in ipairs(elements) do
    for _, name in ipairs { "script", "link", "iframe", "img", "object", "embed", "base", "form" } do
      assert.are_not.equal(name, element.name)
    end
    assert.is_nil(element.attributes:match('%s[Oo][Nn]%a+='), element.attributes)
    local target = element.attributes:match('%shref="([^"]*)"') or "#"
    assert.are.equal("#", target:sub(1, 1))
    assert.is_nil(element.attributes:find("%ssrc="))
  end
  for _, word in ipairs { "@import", "http://", "https://", "javascript:", '"data:', "'data:" } do
    assert.is_nil(page:find(word, 1, true), word)
  end
  for target in page:gmatch("url%(([^)]*)%)") do assert.are.equal("#hatch", target) end
end

local function checked(page)
  local elements, text = parse(page)
  assert_alone(page, elements)
  return elements, text
end

local function count(elements, name)
  local found = 0
  for _, element in ipairs(elements) do found = found + (element.name == name and 1 or 0) end
  return found
end

local hostile = '</style><script>alert("1")</script>&amp; \'x\' <b> \1\255\192 ✓ <!-- ]]>'

describe("escaping", function()
  it("leaves no mark, no control character and no byte that is not UTF-8", function()
    assert.are.equal("&lt;a href=&quot;x&quot;&gt;&amp;amp; &#39;b&#39;", html.escape [[<a href="x">&amp; 'b']])
    assert.are.equal("a b\239\191\189\239\191\189c ✓\n", html.escape "a\1b\255\192c ✓\n")
    assert.are.equal(("\239\191\189"):rep(3), html.escape "\237\160\128")  -- half of a surrogate pair
    assert.are.equal("\240\159\154\128", html.escape "\240\159\154\128")
  end)
end)

describe("report.html", function()
  local function samples(middle)
    local list = {}
    for i = 1, 9 do list[i] = middle * (1 + 0.01 * (i * 4 % 9 - 4)) end
    return { time = { samples_ms = list }, created = "2026-11-15T13:30:24Z" }
  end

  it("has every point, tables with spread, verdicts, failures, figures, commands and the machine", function()
    local runs = fake.make(folder, { "mode", "seq_length" }, {
      { options = { mode = "none", seq_length = 64 }, metrics = fake.metrics(10, 100), result = samples(10), asked = { mode = "no_dp" } },
      { options = { mode = "flash", seq_length = 64 }, metrics = fake.metrics(10, 150), result = samples(10) },
      { options = { mode = "flash", seq_length = 128 }, status = "oom", result = { log_tail = "step 1\nlast <words>" } },
    })
    runs.claims = { { claim = "a < b", verdict = "undecided", figures = "1x; 95 % interval" },
      { claim = "c", verdict = "refuted", figures = "2x" } }
    local path = report.write(runs)
    assert.are.equal(runs.path .. "/report.html", path)
    local elements, text = checked(support.read(path))
    assert.are.equal(3, select(2, text:gsub("\n00000000\n\n%a", "")) - 1)  -- in the results; one of them among the failures, too
    for _, words in ipairs { "fake", "3 points: 2 ok, 1 oom. ", "2026-11-15 13:30 to ", "Verdicts: 1 refuted, 1 undecided", "a &lt; b",
      "95 % of median", "Overhead against none", "within noise", "memory: tried to allocate 5 bytes", "last &lt;words&gt;", "Run it again",
      "Peak memory: llama3-tiny", "1 of 3 points have no result" } do
      assert.matches(words, text, 1, true)
    end
    assert.is_true(count(elements, "figure") >= 3)
    assert.is_true(count(elements, "svg") > count(elements, "figure"))
    assert.are.equal(1, count(elements, "style"))
  end)

  it("survives names, claims, messages and options that nobody meant", function()
    local runs = fake.make(folder, { "mode", "seq_length" }, {
      { options = { mode = hostile:gsub("[\1\128-\255]", ""), model = "<i>&", seq_length = 64 }, metrics = fake.metrics(10, 100) },
      { options = { mode = "flash", model = "<i>&", seq_length = 64 }, metrics = { median_time_ms = "slow", peak_memory_mb = 3 } },
      { options = { mode = "none", seq_length = "<u>" }, status = "failed", result = { error = "<script>" } },
    })
    runs.name = hostile
    runs.environment = { cpu = hostile, gpus = { "<b>" } }
    runs.points[3].error, runs.points[3].result.log_tail = hostile, hostile
    local _, text = checked(report.page(runs, { claims = { { claim = hostile, verdict = hostile, figures = hostile }, 7 },
      texts = { hostile } }))
    assert.matches("&lt;script&gt;alert(&quot;1&quot;)", text, 1, true)
    assert.is_nil(text:find("<script", 1, true))
  end)

  it("of results of the five documents is whole, and of an empty folder too", function()
    for _, name in ipairs { "llama", "bottleneck", "zero", "linear", "dit", "single" } do
      local made = plot_records[name]()
      local folder_of_run = fake.make(folder .. "/" .. name, made.axes, { { options = { mode = "none" } } })
      folder_of_run.points, folder_of_run.axes, folder_of_run.name = made.points, made.axes, made.name
      local page = report.page(folder_of_run)
      local elements, text = checked(page)
      for _, point in ipairs(made.points) do assert.matches(point.id:sub(1, 8), text, 1, true) end
      assert.is_true(count(elements, "figure") > 3, name)
      assert.is_nil(text:find("could not be drawn", 1, true))
      assert.is_true(#page < 1e6, #page)
    end
    local runs = fake.make(folder .. "/empty", {}, {})
    checked(report.page(runs))
  end)

  it("says what is modelled, in a box and in the titles of figures", function()
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "none", world = "fake:4", link = "pcie4", parallel = "fsdp" },
      metrics = fake.metrics(10, 100) } })
    local _, text = checked(report.page(runs))
    assert.matches("Modelled: all points ran as one rank of 4; memory and computation are measured, times of communication are modelled "
      .. "from link = pcie4.", text, 1, true)
    assert.matches("Peak memory: llama3-tiny, batch 2, fsdp, one rank of 4, communication modelled", text, 1, true)
    assert.matches("Modelled: all points", (runs:summary()), 1, true)
    assert.matches("^id,status,modelled,mode,[^\n]*\n%x+,ok,communication,none,", support.read(runs.path .. "/index.csv"))
    assert.matches("modelled\n[^\n]*,communication\n$", runs:tabulate():to "csv")
  end)

  it("keeps figures that the folder holds under other names, and says which cannot be drawn", function()
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "none" }, metrics = fake.metrics(10, 100) } })
    support.write(folder .. "/dummy", "")
    local native = package.loaded["moonshard.native"]
    native.files.write(runs.path .. "/visualizations/mine.plot.json",
      '{"schema_version": 1, "title": "My own", "panels": [{"kind": "lines", "series": [{"name": "a", "x": [1, 2], "y": [3, null]}]}]}')
    native.files.write(runs.path .. "/visualizations/broken.plot.json", '{"title": "x", "panels": [{"kind": "<pie>"}]}')
    local _, text = checked(report.page(runs))
    assert.matches("My own", text, 1, true)
    assert.matches("broken could not be drawn: expected a known kind of panel, got &lt;pie&gt;", text, 1, true)
  end)
end)

describe("ms.report", function()
  it("takes a folder or results, and another file", function()
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "none" }, metrics = fake.metrics(10, 100) } })
    assert.are.equal(runs.path .. "/report.html", ms.report(runs.path))
    assert.are.equal(folder .. "/deep/r.html", ms.report(runs, { output = folder .. "/deep/r.html" }))
    checked(support.read(folder .. "/deep/r.html"))
  end)

  it("raises at the caller's line", function()
    for _, case in ipairs { { { "nowhere" }, "ms.report: nowhere: expected a run folder" },
      { { "x", { ouput = "y" } }, "ms.report: unknown option 'ouput'; did you mean 'output'?" } } do
      local ok, message = pcall(function()
        local path = ms.report(unpack(case[1]))
        return path
      end)
      assert.is_false(ok)
      assert.matches("report_spec.lua:%d+: ", message)
      assert.matches(case[2], message, 1, true)
    end
  end)
end)

describe("moonshard report", function()
  local cli = require "moonshard.cli"

  it("writes the page and prints its path; mistakes are one line", function()
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "none" }, metrics = fake.metrics(10, 100) } })
    local source = ([[
      local ms = require "moonshard"
      local cli = require "moonshard.cli"
      assert(cli.run("report", %q) == 0)
      os.exit(cli.run("report"))]]):format(runs.path)
    support.write(folder .. "/report.lua", source)
    local result = support.run(("%s run report.lua"):format(support.shell_quoted(support.program())), { folder = folder })
    assert.are.equal(2, result.code, result.err)
    assert.are.equal(runs.path .. "/report.html\n", result.out)
    assert.matches("moonshard: report: expected a run folder, got nothing", result.err, 1, true)
    assert.matches("usage: moonshard report DIR [--output FILE]", cli.help("report"), 1, true)
  end)
end)

describe("the way to run it again", function()
  it("is a script of the grid, in which every value is itself", function()
    local request = { shared = { model = "llama3-tiny", data_folder = 'a "b"\n', lr = 1e-05 }, grid = { mode = { "no_dp", "flash" } },
      zip = { seq_length = { 8, 16 }, batch_size = { 4, 2 } }, baseline = { axis = "mode", value = "no_dp" } }
    local script = again.script { name = "x", request = request }
    local seen
    local chunk = assert(loadstring(script))
    setfenv(chunk, { require = function()
      return { sweep = function(given)
        seen = given
        return { run = function() end }
      end }
    end })
    chunk()
    assert.are.same({ name = "x", model = "llama3-tiny", data_folder = 'a "b"\n', lr = 1e-05, grid = request.grid, zip = request.zip,
      baseline = { mode = "no_dp" } }, seen)
    assert.are.equal(4, again.combinations { request = request })
    assert.is_nil(again.script {})
  end)

  it("passes no token on", function()
    assert.are.equal("moonshard sweep x --token … --hf-token=… --seq 1",
      again.without_secrets "moonshard sweep x --token abc --hf-token=d --seq 1")
  end)
end)

describe("a figure as SVG", function()
  it("draws every kind with failures, whiskers, logarithms and nothing at all", function()
    local panels = {}
    for _, kind in ipairs { "bars", "stacked_bars", "lines", "stacked_area", "scatter", "heat_map" } do
      for _, scale in ipairs { "linear", "log" } do
        panels[#panels + 1] = { kind = kind, x = { categories = { "a", "b" } }, y = { scale = scale, label = "<y>", unit = "ms" },
          series = { { name = "s&t", x = { 0, 1 }, y = { 3, false }, low = { 2 }, high = { 4 }, status = { "ok", "o<m" } } } }
      end
    end
    panels[#panels + 1] = { kind = "bars", horizontal = true, series = {} }
    panels[#panels + 1] = { kind = "lines", x = { scale = "log" }, series = { { name = "z", x = { -1, 0 / 0 }, y = { 1e300, -1 / 0 } } } }
    panels[#panels + 1] = { kind = "lines", x = { scale = "log" }, y = { scale = "log" }, bands = { { from = 0, to = 9, label = "b" } },
      references = { { x = { 0, 2 }, y = { -1, 3 }, text = "r" }, { y = 1e308 } },
      series = { { name = "z", x = { 1, 2 }, y = { 1, 1e308 } } } }
    local page = "<!DOCTYPE html>\n" .. figures.draw { title = "all", panels = panels }
    local elements = parse(page)
    assert.are.equal(#panels, count(elements, "svg"))
    for _, element in ipairs(elements) do
      assert.is_nil(element.attributes:find("nan", 1, true) or element.attributes:find("inf", 1, true), element.attributes)
    end
  end)

  it("has the viewer's colours for the viewer's names", function()
    local colors = require "moonshard.svg.colors"
    local source = support.read(support.root() .. "/viewer/widgets/colors.cpp")
    local names = 0
    for index, list in source:gmatch("\n    {(%d+), {(\"[^}]*)}}") do
      for name in list:gmatch('"([^"]+)"') do
        assert.are.equal(tonumber(index), colors.named[name:gsub("_", " ")], name)
        names = names + 1
      end
    end
    assert.is_true(names > 40)
    for theme, list in pairs { Light = colors.light, Dark = colors.dark } do
      local block = source:match("k" .. theme .. "Series = {(.-)}")
      local n = 0
      for value in block:gmatch("0x(%x+)") do
        n = n + 1
        assert.are.equal(value, list[n])
      end
      assert.are.equal(16, n)
    end
  end)

  it("shows every figure of the documents without a number that is none", function()
    for _, made in ipairs { plot_records.llama(), plot_records.zero(), plot_records.dit() } do
      for _, name in ipairs(plots.figures) do
        local spec = plots.spec(made, name)
        if spec then
          local text = figures.draw(spec)
          assert.is_nil(text:find('[" M,L]%-?nan') or text:find('[" M,L]%-?inf%f[^%a]'), name)
        end
      end
    end
  end)
end)
