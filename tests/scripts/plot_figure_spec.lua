--- ms.plot: what it makes of rows, columns, results and tables; PNG by the viewer, SVG and PDF by the library; and PDF files byte by byte.
local support = require "tests.support.support"
local ms = require "moonshard"
local documents = require "moonshard.pdf.document"
local figures = require "moonshard.repl.figures"
local fonts = require "moonshard.pdf.fonts"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local pages = require "moonshard.svg.page"
local paths = require "moonshard.pdf.paths"
local plot_records = require "tests.support.plot_records"
local plots = require "moonshard.plots"

local folder
before_each(function() folder = support.memory_folder() end)
after_each(function() support.remove(folder) end)

local function rows()
  local list = {}
  for _, mode in ipairs { "none", "ghost" } do
    for seed = 1, 3 do
      for step = 1, 4 do
        list[#list + 1] = { mode = mode, seed = seed, step = step, loss = (mode == "none" and 1 or 2) * 10 / step + seed }
      end
    end
  end
  return list
end

local function spec(ask)
  ask.out = folder .. "/x.svg"
  local made = ms.plot(ask).spec
  -- What the viewer's own reader takes.
  native.records.write_plot(native.records.create(folder, "check"), "own", made)
  return made
end

local function failing(ask)
  local ok, message = pcall(function()
    local figure = ms.plot(ask)
    return figure
  end)
  assert.is_false(ok)
  assert.matches("plot_figure_spec.lua:%d+: ms.plot: ", message)
  return message
end

describe("ms.plot", function()
  it("makes a series of each group, and one point with its spread of rows that repeat", function()
    local made = spec { rows(), x = "step", y = "loss", group = "mode", log = "y", title = "Loss", x_label = "steps", y_unit = "nats" }
    local panel = made.panels[1]
    assert.are.same({ "lines", "Loss", "steps", "loss", "nats", "log" },
      { panel.kind, made.title, panel.x.label, panel.y.label, panel.y.unit, panel.y.scale })
    assert.are.same({ "none", "ghost" }, lists.column(panel.series, "name"))
    assert.are.same({ 1, 2, 3, 4 }, panel.series[1].x)
    assert.are.same({ 12, 7 }, { panel.series[1].y[1], panel.series[1].y[2] })
    assert.are.same({ 11.5, 12.5 }, { panel.series[1].low[1], panel.series[1].high[1] })
    assert.are.equal("Median of up to 3 rows per point; whiskers span the middle half.", made.note)
    local mean = spec { rows(), x = "step", y = "loss", group = "mode", error = "sem" }
    assert.are.equal("Mean of up to 3 rows per point; whiskers are one standard error.", mean.note)
    assert.is_true(math.abs(mean.panels[1].series[1].high[1] - (12 + 1 / math.sqrt(3))) < 1e-9)
    assert.is_nil(spec { rows(), x = "step", y = "loss", group = "mode", error = false }.panels[1].series[1].low)
    local line = spec { rows(), x = "step", y = "loss", references = { { y = 5, text = "target" } } }.panels[1].references[1]
    assert.are.same({ y = { 5 }, text = "target" }, line)
  end)

  it("takes columns, tensors, lists of numbers, tables and errors that are columns", function()
    local panel = spec { { t = ms.tensor { 1, 2 }, a = { 5, 6 }, b = { 7, 8 } }, x = "t", y = { "a", "b" } }.panels[1]
    assert.are.same({ "a", "b" }, lists.column(panel.series, "name"))
    assert.are.same({ 7, 8 }, panel.series[2].y)
    assert.are.same({ 1, 2, 3 }, spec({ { 4, 5, 6 } }).panels[1].series[1].x)
    assert.are.same({ 1, 2 }, spec({ { y = { 4, 5 } } }).panels[1].series[1].x, "rows are counted")
    panel = spec { { { x = 1, y = 5, e = 2 }, { x = 2, y = 6, e = 1 } }, error = "e" }.panels[1]
    assert.are.same({ { 3, 5 }, { 7, 7 } }, { panel.series[1].low, panel.series[1].high })
    panel = spec { { { x = 1, y = 5, l = 4, h = 9 } }, error = { low = "l", high = "h" } }.panels[1]
    assert.are.same({ { 4 }, { 9 } }, { panel.series[1].low, panel.series[1].high })
    local tabulated = require("moonshard.text_table").new { columns = { "mode", "ms" }, rows = { { "none", 5 }, { "ghost", 8 } } }
    panel = spec { tabulated, x = "mode", y = "ms" }.panels[1]
    assert.are.same({ "bars", { "none", "ghost" }, { 5, 8 } }, { panel.kind, panel.x.categories, panel.series[1].y })
  end)

  it("draws points as they are, areas with shared x, heat maps by value, and panels of a column", function()
    local points = spec { rows(), x = "loss", y = "step", kind = "points" }.panels[1]
    assert.are.same({ "scatter", 24 }, { points.kind, #points.series[1].x })
    local three = { { x = 1, y = 1, g = "a" }, { x = 3, y = 1, g = "a" }, { x = 2, y = 4, g = "b" } }
    local area = spec({ three, group = "g", kind = "area" }).panels[1]
    assert.are.same({ { 1, 2, 3 }, { 1, 2, 3 } }, lists.column(area.series, "x"))
    assert.are.same({ 0, 4, 0 }, area.series[2].y)
    local map = spec { rows(), x = "step", y = "mode", value = "loss", kind = "heatmap" }.panels[1]
    assert.are.same({ "heat_map", { "1", "2", "3", "4" }, { "none", "ghost" } },
      { map.kind, map.x.categories, lists.column(map.series, "name") })
    local several = spec { rows(), x = "step", y = "loss", group = "mode", panels = "seed" }
    assert.are.same({ "seed 1", "seed 2", "seed 3" }, lists.column(several.panels, "title"))
  end)

  it("keeps what failed visible: status of points, figures that are none", function()
    local panel = spec { { { x = 1, y = 2 }, { x = 2, y = 0 / 0 }, { x = 3, status = "oom" }, { x = 4 } } }.panels[1]
    assert.are.same({ 1, 2, 3 }, panel.series[1].x)
    assert.are.same({ "ok", "nan", "oom" }, panel.series[1].status)
  end)

  it("takes results: their points, or their steps where these are asked for", function()
    local run = ms.log.run { out = folder, options = { lr = 0.1 } }
    for step = 1, 3 do run:log(step, { loss = 3 / step }) end
    run:finish { score = 5 }
    run:point({ lr = 0.2 }):finish { score = 7 }
    local runs = ms.load(run.path)
    assert.are.same({ { 0.1, 0.2 }, { 5, 7 } }, { spec({ runs, x = "lr", y = "score" }).panels[1].series[1].x,
      spec({ runs, x = "lr", y = "score" }).panels[1].series[1].y })
    local steps = spec({ runs, x = "step", y = "loss", group = "lr" }).panels[1].series
    assert.are.same({ "lr 0.1", { 1, 2, 3 }, { 3, 1.5, 1 } }, { steps[1].name, steps[1].x, steps[1].y })
  end)

  it("writes PNG, SVG and PDF, prints as their paths, and is shown once", function()
    local out = { folder .. "/sub/a.pdf", folder .. "/a.svg", folder .. "/a.png" }
    local figure = ms.plot { rows(), x = "step", y = "loss", group = "mode", out = out, size = "500x300", scale = 1 }
    assert.are.equal(table.concat(out, "\n"), tostring(figure))
    assert.matches("^%%PDF%-1%.4\n", support.read(out[1]))
    assert.matches("^<%?xml .-<svg xmlns=", support.read(out[2]))
    assert.are.equal("\137PNG", support.read(out[3]):sub(1, 4))
    assert.are.same({ { mime = "image/png", path = out[3] } }, figures.of(figure))
    assert.is_nil(io.open(folder .. "/a.plot.json"))
    assert.are.equal(4, #figure:save(folder .. "/b.svg"))
    assert.are.same({ { mime = "image/svg+xml", path = folder .. "/b.svg" } }, figures.of(ms.plot { { 1 }, out = folder .. "/b.svg" }))
    assert.are.same({}, figures.of(ms.plot { { 1 }, out = folder .. "/b.pdf" }))
  end)

  it("says what is wrong at the caller's line", function()
    assert.matches("expected a column of the data, got 'stp'; did you mean 'step'? known: loss, mode, seed, step",
      failing { rows(), x = "stp", y = "loss" }, 1, true)
    assert.matches("option 'kind': expected lines, points, bars, stacked_bars, area, heatmap, got 'pie'",
      failing { rows(), x = "step", y = "loss", kind = "pie" }, 1, true)
    assert.matches("option 'out': expected a figure as png, svg or pdf, got 'gif'",
      failing { rows(), x = "step", y = "loss", out = folder .. "/a.gif" }, 1, true)
    assert.matches("expected data: a list of rows, a table of columns", failing {}, 1, true)
    assert.matches("unknown option 'titel'; did you mean 'title'?", failing { rows(), titel = "x" }, 1, true)
    assert.matches("option 'value': expected the column that colours a heatmap",
      failing { rows(), x = "step", y = "loss", kind = "heatmap" }, 1, true)
    assert.matches("expected a number of 'mode' in some row, got none in 24 rows", failing { rows(), x = "step", y = "mode" }, 1, true)
    assert.matches("option 'error': expected one row per point beside a column of errors, got 6",
      failing { rows(), x = "step", y = "loss", error = "seed" }, 1, true)
    assert.matches("expected columns of one length, got 1 values of 'a' and 2 of 'b'",
      failing { { a = { 1 }, b = { 1, 2 } }, x = "a", y = "b" }, 1, true)
  end)
end)

--- Objects of a PDF file by number, each where the table at its end says.
local function objects_of(file)
  local start = tonumber(file:match("startxref\n(%d+)\n%%%%EOF\n$"))
  local count, entries = file:match("^xref\n0 (%d+)\n(.-)trailer", start + 1)
  local objects, i = {}, 0
  for offset, kind in entries:gmatch("(%d+) %d+ ([nf]) \n") do
    if kind == "n" then
      local number, body = file:match("^(%d+) 0 obj\n(.-)\nendobj\n", tonumber(offset) + 1)
      assert.are.equal(i, tonumber(number))
      objects[i] = body
    end
    i = i + 1
  end
  assert.are.equal(tonumber(count), i)
  return objects
end

describe("a PDF file", function()
  it("has every object where its table says, streams of the length that they tell, and states that it takes back", function()
    local names = 0
    for _, made in ipairs { plot_records.llama(), plot_records.zero(), plot_records.dit() } do
      for _, name in ipairs(plots.figures) do
        local drawn = plots.spec(made, name)
        if drawn then
          local file = documents.of_page(pages.new(drawn))
          local objects = objects_of(file)
          local length, stream = objects[4]:match("^<< /Length (%d+) >>\nstream\n(.*)\nendstream$")
          assert.are.equal(tonumber(length), #stream)
          local _, saved = ("\n" .. stream .. "\n"):gsub("%f[%w]q%f[%s]", "")
          local _, restored = ("\n" .. stream .. "\n"):gsub("%f[%w]Q%f[%s]", "")
          assert.are.equal(saved, restored, name)
          assert.is_nil(stream:find("%f[%a]nan%f[%A]") or stream:find("%f[%a]inf%f[%A]"), name)
          names = names + 1
        end
      end
    end
    assert.is_true(names > 20)
  end)

  it("shows text that other programs can search, Greek letters and parentheses included", function()
    local panel = { kind = "lines", series = { { name = "s", x = { 1 }, y = { 1 } } } }
    local page = pages.new { title = "ε (1) ≤ 2 … “x”\\", panels = { panel } }
    local file = documents.of_page(page)
    assert.is_truthy(file:find("/S 15 Tf (e) Tj /B 15 Tf ( \\(1\\) ) Tj /S 15 Tf (\\243) Tj", 1, true))
    assert.is_truthy(file:find("2 \\205 \\223x\\224\\\\", 1, true))
    assert.is_truthy(file:find("/Title <FEFF03B5", 1, true))
    assert.are.same({ { bytes = "??", is_symbol = false } }, fonts.pieces("\226\152\131\255"))
  end)

  it("knows the widths of its fonts", function()
    assert.are.equal(10 * (722 + 556 + 222 + 222 + 556) / 1000, fonts.width("Hello", 10))
    assert.are.equal(10 * (278 + 1000 + 439) / 1000, fonts.width(" …ε", 10))
  end)

  it("draws SVG's paths", function()
    assert.are.equal("1.00 2.00 m\n4.00 2.00 l\n4.00 5.00 l\n3.00 4.00 l\nh\n1.00 3.00 l", paths.operators("M1 2H4v3l-1 -1Zv1"))
    assert.matches("^3%.00 2%.00 m\n", paths.circle(1, 2, 2))
    assert.has_error(function() paths.operators("M1 1A3") end)
  end)
end)

describe("figures of runs", function()
  it("come in the formats that are asked for", function()
    local run = ms.log.run { out = folder, options = { lr = 0.1 } }
    run:finish { score = 5 }
    run:point({ lr = 0.2 }):finish { score = 7 }
    local runs = ms.load(run.path)
    local made = runs:plot { "own_metrics", format = { "pdf", "svg" } }
    assert.are.same({ "own_metrics.pdf", "own_metrics.svg" }, lists.map(made, function(path) return path:match("[^/]+$") end))
    assert.matches("^%%PDF", support.read(made[1]))
    local ok, message = pcall(function()
      local drawn = runs:plot { "own_metrics", format = "gif" }
      return drawn
    end)
    assert.is_false(ok)
    assert.matches("plot_figure_spec.lua:%d+: runs:plot: option 'format': expected a figure as png, svg or pdf, got 'gif'", message)
    local said = support.run_program(("plot %s own_metrics --format svg,pdf"):format(run.path))
    assert.are.equal(0, said.code, said.err)
    assert.matches("own_metrics.svg\n.-own_metrics.pdf\n", said.out)
    said = support.run(("exec %s plot %s own_metrics --format gif"):format(support.shell_quoted(support.program()), run.path))
    assert.are.equal(2, said.code)
    assert.matches("option '--format': expected png, svg, pdf or several with commas, got 'gif'", said.err, 1, true)
  end)
end)
