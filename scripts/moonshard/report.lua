--- report.html: all of a run on one page that needs no other file and no network: what ran and when, verdicts with their reasons,
-- tables with their spread, what failed and why, every figure, how to run it again, and the machine.
local again = require "moonshard.report.again"
local figures = require "moonshard.svg.figure"
local html = require "moonshard.html"
local lazy_points = require "moonshard.lazy_points"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local plot_points = require "moonshard.plot_points"
local plots = require "moonshard.plots"
local statistics = require "moonshard.analyze.statistics"
local style = require "moonshard.report.style"

local M = {}

local function read_json(path)
  local ok, content = pcall(native.files.read_json, path)
  return ok and plot_points.list(content) or {}
end

local function section(id, title, content)
  return { id = id, title = title, html = ('<section id="%s">%s\n%s</section>'):format(id, html.text("h2", title), content) }
end

--- First and last moment of the records: "2026-11-15 13:30 to 14:02 UTC".
local function when(results, sweep)
  local times = lists.map(results.points, function(point) return plot_points.list(point.result).created end)
  local known = {}
  for i = 1, #results.points do known[#known + 1] = type(times[i]) == "string" and times[i] or nil end
  if type(sweep.created) == "string" and sweep.created ~= "" then known[#known + 1] = sweep.created end
  if #known == 0 then return nil end
  table.sort(known)
  local function shown(text) return (text:sub(1, 16):gsub("T", " ")) end
  local first, last = shown(known[1]), shown(known[#known])
  if first == last then return first .. " UTC" end
  return ("%s to %s UTC"):format(first, first:sub(1, 10) == last:sub(1, 10) and last:sub(12) or last)
end

local function header(results, sweep, left_out)
  local whole = results.whole or results
  local name = results.name ~= "" and results.name or results.path:gsub("/+$", ""):match("([^/]+)$") or "run"
  local count = {}
  for _, point in ipairs(whole.points) do count[tostring(point.status)] = (count[tostring(point.status)] or 0) + 1 end
  local parts = lists.map(lists.keys(count), function(status) return ("%d %s"):format(count[status], status) end)
  local lines = { html.text("h1", name), html.text("p", plot_points.subject(results)),
    html.text("p.muted", ("%d points: %s. %s"):format(#whole.points, table.concat(parts, ", "), when(results, sweep) or "")) }
  if results.labels and results:labels() then lines[#lines + 1] = html.text("p.muted", results:labels()) end
  local boxes = { plot_points.modelled_note(results) or false, statistics.warning(results) or false }
  if #whole.points > whole:count("ok") then
    boxes[#boxes + 1] = ("%d of %d points have no result; see Failures."):format(#whole.points - whole:count("ok"), #whole.points)
  end
  if left_out then boxes[#boxes + 1] = left_out end
  for i, text in ipairs(boxes) do
    if text then lines[#lines + 1] = html.text(i == 1 and "p.box" or "p.box.bad", text) end
  end
  return name, table.concat(lines, "\n")
end

local verdict_words = lists.set { "confirmed", "refuted", "undecided", "not measured" }

local function verdicts_section(claims)
  local items, count = {}, {}
  for _, claim in ipairs(plot_points.list(claims)) do
    claim = plot_points.list(claim)
    local word = verdict_words[claim.verdict] and claim.verdict or "not measured"
    count[word] = (count[word] or 0) + 1
    items[#items + 1] = ('<dt><span class="verdict %s">%s</span> %s</dt><dd>%s</dd>'):format(word:gsub(" ", "-"), word,
      html.escape(claim.claim or ""), html.escape(claim.figures or ""))
  end
  if #items == 0 then return nil end
  local parts = {}
  for _, word in ipairs { "confirmed", "refuted", "undecided", "not measured" } do
    if count[word] then parts[#parts + 1] = ("%d %s"):format(count[word], word) end
  end
  return section("verdicts", "Verdicts: " .. table.concat(parts, ", "), html.element("dl.claims", table.concat(items, "\n")))
end

local interval_note = ("95 %% of median, 95 %% of time x: percentile bootstrap over the measured steps, %d resamples; within noise: the "
  .. "interval of the ratio contains 1. Steps of one process are compared: differences between runs come on top.")
  :format(statistics.resamples)

local function results_section(results)
  local columns, rows = results:rows()
  columns, rows = lists.extend({ "point" }, columns), lists.map(rows, function(row, r)
    local wider = { results.points[r].id:sub(1, 8) }
    for c = 1, #columns do wider[c + 1] = row[c] end
    return wider
  end)
  return section("results", "Results", html.table(columns, rows, function(r)
    return results.points[r].status ~= "ok" and "bad" or nil
  end) .. html.text("p.note", interval_note))
end

local function overhead_section(results)
  local ok, overhead = pcall(results.overhead, results)
  if not ok or results:count("ok") == 0 then return nil end
  return section("overhead", "Overhead against " .. tostring(overhead.baseline), html.table(overhead.columns, overhead.rows, function(r)
    return overhead.is_baseline[r] and "baseline" or nil
  end) .. html.text("p.note", "The baseline's own rows are grey."))
end

local function failures_section(results)
  local rows, logs = {}, {}
  for _, point in ipairs(results.points) do
    if point.status ~= "ok" then
      local name = plot_points.name(point, plot_points.other_axes(results), true)
      local without_record = (point.status == "planned" or point.status == "running") and "it has not run to its end; resume the sweep"
        or "no result was written"
      rows[#rows + 1] = { point.id:sub(1, 8), name, point.status, point.error ~= "" and point.error or without_record }
      local savings = outcome.savings(plot_points.list(point.result), 6)
      if #savings > 0 then
        logs[#logs + 1] = html.text("p", ("What would save memory of %s, of the step's peak, each by itself:"):format(name))
          .. html.text("pre", table.concat(savings, "\n"))
      end
      local tail = plot_points.list(point.result).log_tail
      if type(tail) == "string" and tail ~= "" then
        logs[#logs + 1] = html.text("p", ("Last lines of %s:"):format(name)) .. html.text("pre", tail)
      end
    end
  end
  if #rows == 0 then return nil end
  return section("failures", "Failures", html.element("div.prose", html.table({ "point", "options", "status", "reason" }, rows))
    .. table.concat(logs, "\n"))
end

--- Specs that a run folder holds beyond those that its records give: figures asked for by name, and written by hand.
local function stored_specs(results, is_made)
  local folder, specs = results.path .. "/visualizations", {}
  local ok, names = pcall(native.files.list, folder)
  for _, name in ipairs(ok and names or {}) do
    local figure = name:match("^(.*)%.plot%.json$")
    if figure and not is_made[figure] then specs[#specs + 1] = { name = figure, spec = read_json(folder .. "/" .. name) } end
  end
  return specs
end

local most_in_figures = 200

local function figures_section(results)
  local drawn, is_made, left_out = {}, {}
  results, left_out = lazy_points.excerpt(results, most_in_figures)
  if left_out then drawn[1] = html.text("p.note", left_out) end
  local function draw(name, spec)
    local ok, text = pcall(figures.draw, spec)
    drawn[#drawn + 1] = ok and text or html.text("p.note", ("%s could not be drawn: %s"):format(name, tostring(text)))
  end
  for _, name in ipairs(plots.figures) do
    local ok, spec = pcall(plots.spec, results, name)
    if ok and spec and not plots.only_by_name[name] then
      is_made[name] = true
      draw(name, spec)
    end
  end
  for _, stored in ipairs(stored_specs(results, is_made)) do draw(stored.name, stored.spec) end
  if #drawn == (left_out and 1 or 0) then return nil end
  return section("figures", "Figures", table.concat(drawn, "\n"))
end

local function again_section(results, sweep)
  local parts, request = {}, plot_points.list(sweep.request)
  if type(request.command) == "string" then
    parts[#parts + 1] = html.text("p", "Started with:") .. html.text("pre", again.without_secrets(request.command))
  end
  local script = again.script(sweep)
  if script then
    local left_out = again.combinations(sweep) - #(results.whole or results).points
    parts[#parts + 1] = html.text("p", "The same grid as a script" .. (left_out > 0
      and (", which also has %d combinations that the run left out:"):format(left_out) or ":")) .. html.text("pre", script)
  end
  if #parts == 0 then parts[1] = html.text("p", "The folder has no sweep.json with the request: the command is not known.") end
  local name = results.path:gsub("/+$", ""):match("([^/]+)$") or results.path
  parts[#parts + 1] = html.text("p", "With the run folder at hand:")
    .. html.text("pre", ("moonshard view %s\nmoonshard plot %s\nmoonshard compare %s OTHER"):format(name, name, name))
  return section("again", "Run it again", table.concat(parts, "\n"))
end

local function environment_section(results)
  local environment = plot_points.list(results.environment)
  if next(environment) == nil then environment = read_json(results.path .. "/env.json") end
  local rows = {}
  for _, key in ipairs(lists.keys(environment)) do
    local value = environment[key]
    if type(value) == "table" then value = table.concat(lists.map(value, tostring), ", ") end
    if key:match("_bytes$") and type(value) == "number" then key, value = key:gsub("_bytes$", ""), ("%.1f GiB"):format(value / 2 ^ 30) end
    if key ~= "schema_version" then rows[#rows + 1] = { (key:gsub("_", " ")), type(value) == "number" and value or tostring(value) } end
  end
  if #rows == 0 then return nil end
  return section("environment", "Environment", html.element("div.prose", html.table({ "what", "value" }, rows)))
end

--- Tables of a study beyond those that every run has.
local function study_section(texts)
  if not texts or #texts == 0 then return nil end
  return section("study", "Tables of the study", table.concat(lists.map(texts, function(text) return html.text("pre", text) end), "\n"))
end

--- The page.
-- @tparam Runs results
-- @tparam[opt] table options claims (verdicts; else those of expect.json), texts (more tables)
-- @treturn string
function M.page(results, options)
  options = options or {}
  local left_out
  results, left_out = lazy_points.excerpt(results)
  local sweep = { name = results.name, created = results.created, request = results.request }
  local name, head = header(results, sweep, left_out)
  local sections = {}
  for _, each in ipairs { verdicts_section(options.claims or results.claims or read_json(results.path .. "/expect.json").claims) or false,
    results_section(results), overhead_section(results) or false, failures_section(results) or false, study_section(options.texts) or false,
    figures_section(results) or false, again_section(results, sweep), environment_section(results) or false } do
    if each then sections[#sections + 1] = each end
  end
  local links = lists.map(sections, function(each) return ('<li><a href="#%s">%s</a></li>'):format(each.id, html.escape(each.title)) end)
  return table.concat({ "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">', html.text("title", name .. ": report"),
    ("<style>\n%s\n</style></head><body>"):format(style.sheet()), style.definitions, html.element("header", head),
    html.element("nav", html.element("ul", table.concat(links))), html.element("main", table.concat(lists.column(sections, "html"), "\n")),
    html.element("footer", html.text("p.muted", "Made by moonshard.")), "</body></html>", "" }, "\n")
end

--- Writes report.html of results, whole or not at all.
-- @tparam Runs results
-- @tparam[opt] table options as M.page takes them; output = another file
-- @treturn string its path
function M.write(results, options)
  local path = options and options.output or results.path .. "/report.html"
  native.files.write(path, M.page(results, options))
  return path
end

--- ms.report: the report of a run folder.
-- @tparam string|Runs run folder, or results of one
-- @tparam[opt] table options output = file to write instead of report.html in the folder
-- @treturn string path of what was written
-- @usage print(ms.report "results/run_20261115_101500_fsdp_llama3")
function M.report(run, options)
  options = require("moonshard.options_guard").check("ms.report", options, { "output" }, 2)
  local results = run
  if type(run) ~= "table" then
    local ok, loaded = pcall(require("moonshard.runs").load, run)
    if not ok then error("ms.report: " .. tostring(loaded):gsub("^ms%.load: ", ""), 2) end
    results = loaded
  end
  if type(results.path) ~= "string" or type(results.points) ~= "table" then
    error("ms.report: expected a run folder, or results of one (ms.load), got another table", 2)
  end
  if options.output ~= nil and type(options.output) ~= "string" then
    error("ms.report: option 'output': expected a file's path, got " .. tostring(options.output), 2)
  end
  return M.write(results, options)
end

return M
