require "moonshard"
local text_table = require "moonshard.text_table"

describe("text tables", function()
  it("align texts left, numbers right, under their titles", function()
    assert.are.equal(table.concat({
      "mode          ms",
      "-----------  ---",
      "none           5",
      "materialize  120",
    }, "\n"), text_table.format({ "mode", "ms" }, { { "none", 5 }, { "materialize", 120 } }))
  end)

  it("show numbers with the digits that matter", function()
    local text = text_table.format({ "x" }, { { 1234.56 }, { 12.345 }, { 0.012345 }, { 1e20 }, { 0 } })
    for _, wanted in ipairs { "1234.6", "12.35", "0.0123", "1e+20", "0" } do
      assert.is_true(text:find(wanted, 1, true) ~= nil, wanted .. " in " .. text)
    end
  end)

  it("show a missing value as a dash, also in the last column", function()
    local text = text_table.format({ "a", "b", "c" }, { { 1, nil, nil }, { nil, 2, 3 } })
    assert.are.equal("1  -  -", text:match("\n([^\n]+)\n[^\n]+$"))
    assert.are.equal("-  2  3", text:match("([^\n]+)$"))
  end)

  it("a column with one word is aligned left", function()
    assert.are.equal("oom", text_table.format({ "ms" }, { { 5 }, { "oom" } }):match("([^\n]+)$"))
    assert.are.equal("5", text_table.format({ "ms" }, { { 5 }, { "oom" } }):match("\n([^\n]+)\n[^\n]+$"))
  end)

  it("count letters, not bytes", function()
    local lines = {}
    for line in text_table.format({ "n", "x" }, { { "é", 1 }, { "ab", 2 } }):gmatch("[^\n]+") do lines[#lines + 1] = line end
    assert.are.equal("é   1", lines[3])
    assert.are.equal("ab  2", lines[4])
  end)

  it("not-a-number and infinities do not raise", function()
    assert.matches("nan", text_table.format({ "x" }, { { 0 / 0 } }))
    assert.matches("inf", text_table.format({ "x" }, { { math.huge } }))
    assert.matches("-inf", text_table.format({ "x" }, { { -math.huge } }), 1, true)
  end)

  it("without rows only the titles remain", function()
    assert.are.equal("a  b\n-  -", text_table.format({ "a", "b" }, {}))
  end)

  it("a cell keeps to its line", function()
    local text = text_table.format({ "error" }, { { "one\ntwo" } })
    local _, breaks = text:gsub("\n", "")
    assert.are.equal(2, breaks)
  end)

  it("Markdown escapes what would end a cell", function()
    assert.are.equal("| a | b |\n| --- | --- |\n| x\\|y | 1 |", text_table.markdown({ "a", "b" }, { { "x|y", 1 } }))
    local _, breaks = text_table.markdown({ "a" }, { { "one\ntwo" } }):gsub("\n", "")
    assert.are.equal(2, breaks)
  end)

  it("LaTeX escapes what means something there, and aligns numbers right", function()
    assert.are.equal(table.concat({
      "% needs \\usepackage{booktabs}",
      "\\begin{tabular}{lr}",
      "\\toprule",
      "a\\_b & 50 \\% \\\\",
      "\\midrule",
      "x\\textbackslash{}y \\& \\{z\\} \\$\\#\\textasciitilde{}\\textasciicircum{} & 1.50 \\\\",
      "\\bottomrule",
      "\\end{tabular}",
    }, "\n"), text_table.latex({ "a_b", "50 %" }, { { "x\\y & {z} $#~^", 1.5 } }))
  end)

  it("sizes and shares have no exponent, by the column's title or the table's unit", function()
    local columns, rows = { "x", "peak MiB", "memory +%" }, { { 1.53e-05, 1.53e-05, -2e-7 } }
    for _, format in ipairs { "format", "markdown", "latex" } do
      local text = text_table[format](columns, rows)
      assert.matches("1.53e-05", text, 1, true)
      assert.matches("0.00", text, 1, true)
      assert.is_nil(text:match("1.53e%-05.*1.53e%-05"), text)
      assert.is_nil(text:find("e-07", 1, true), text)
    end
    local sized = text_table.new { columns = { "owner", "none" }, rows = { { "inputs", 1.53e-05 } }, unit = "MiB" }
    assert.is_nil(tostring(sized):find("e-05", 1, true))
    assert.is_nil(sized:to("md"):find("e-05", 1, true))
    assert.matches("e-05", sized:to "csv", 1, true)
    local page = require("moonshard.html").table({ "peak MiB" }, { { 1.53e-05 } })
    assert.matches(">0.00<", page, 1, true)
  end)

  it("CSV keeps every digit, quotes where it must, and leaves a missing value empty", function()
    local text = text_table.csv({ "a", "b,c" }, { { 0.1, 'say "x"' }, { 2 ^ 40, nil } })
    assert.are.equal('a,"b,c"\n0.10000000000000001,"say ""x"""\n1099511627776,\n', (text:gsub("\r\n", "\n")))
  end)

  it("a table object prints title, rows and notes, and converts itself", function()
    local table_object = text_table.new { title = "T", columns = { "n" }, rows = { { 1 } }, notes = { "note" } }
    assert.are.equal("T\n\nn\n-\n1\nnote", tostring(table_object))
    assert.are.equal("| n |\n| --- |\n| 1 |\n", table_object:to "md")
    assert.matches('"n": 1', table_object:to "json", 1, true)
  end)
end)
