--- One script per document: flags, presets, the sweep, figures, tables, claims. A script says what is special
-- about its document in one table; the rest is here.
--
--     return require("moonshard.studies.document").main({
--       name = "fsdp_llama3", about = "…", presets = { tiny = { model = …, grid = {…} }, full = {…} },
--       figures = { "memory_comparison" }, expect = { { claim = "…", check = … } }, report = function(runs, given) … end,
--     }, ...)
local arguments = require "moonshard.arguments"
local document_flags = require "moonshard.studies.flags"
local expect = require "moonshard.sweep.expect"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local report = require "moonshard.report"
local usage = require "moonshard.usage"

local M = {}

local function module_table() return package.loaded["moonshard"] end

local function number_of_gpus() return #(module_table().machine().gpus or {}) end

local function deep_copy(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, each in pairs(value) do copy[key] = deep_copy(each) end
  return copy
end

local function print_help(spec, flags)
  print(("usage: moonshard sweep %s [--preset %s] [options]\n\n%s\n\n%s"):format(spec.name,
    table.concat(lists.keys(spec.presets), "|"), spec.about,
    arguments.describe(lists.select(flags, function(flag) return not flag.option end))))
  print("\nEvery experiment option is a flag too, in the singular or plural; several values make an axis of it:")
  print("  --seq-lengths 512 1024   --batch_size=4   --mode flash_fsdp   (all of them: moonshard profile --help)")
  for _, option in ipairs(lists.keys(document_flags.seed_names)) do
    print(("  --%-20s also --%s"):format((option:gsub("_", "-")), table.concat(document_flags.seed_names[option], ", --")))
  end
end

--- The preset to take, and a line with the reason when none was given.
local function choose_preset(spec, given)
  local name = given.preset
  if name and not spec.presets[name] then
    usage.fail_unknown(spec.name, ("preset '%s'"):format(name), name, lists.keys(spec.presets))
  end
  if name then return name end
  if number_of_gpus() > 0 and not given.cpu then
    return "full", ("%s: preset full (a GPU is here); --preset tiny takes minutes"):format(spec.name)
  end
  return "tiny", ("%s: preset tiny, because %s; --preset full has the document's sizes"):format(spec.name,
    given.cpu and "--cpu was given" or "there is no GPU here")
end

--- Real ranks where there are enough devices, else one rank of that many on this device.
local function place_ranks(spec, plan)
  local ranks = plan.nproc or 1
  local on_cpu = plan.device == "cpu" or number_of_gpus() == 0
  if ranks <= 1 or plan.world or on_cpu or number_of_gpus() >= ranks then return end
  plan.nproc, plan.world = nil, "fake:" .. ranks
  print(("%s: %d GPU here, the document has %d: one rank of %d runs (world = fake:%d), communication modelled from link = %s"):format(
    spec.name, number_of_gpus(), ranks, ranks, ranks, plan.link or "nvlink"))
end

local function number_of_points(plan)
  local count = 1
  for _, values in pairs(plan.grid or {}) do count = count * #values end
  local _, zipped = next(plan.zip or {})
  return zipped and count * #zipped or count
end

--- The sweep's table from preset and flags.
local function plan_of(spec, given, flags)
  local preset, line = choose_preset(spec, given)
  if line then print(line) end
  local plan = deep_copy(spec.presets[preset])
  if given.cpu then plan.device = "cpu" end
  if given.use_profiler then plan.profile = "trace" end
  document_flags.apply(plan, given, flags)
  if spec.plan then plan = spec.plan(plan, given, preset) or plan end
  place_ranks(spec, plan)
  if given.token then
    print(spec.name .. ": --token is not needed: nothing is downloaded; weights start at random, or from --weights FOLDER")
  end
  plan.name, plan.out = spec.name, given.output_dir or spec.output_dir or "results"
  plan.baseline, plan.seed_result = spec.baseline, spec.seed_result
  if number_of_points(plan) > 1 then plan.expect = spec.expect end  -- claims compare points
  return plan
end

--- visualizations/summary.txt: every point, overhead, the document's tables, its claims.
local function summary_text(runs, sections, verdicts)
  local parts = lists.extend({ (runs:summary():gsub("\n+$", "")) }, sections)
  local claims = verdicts and expect.describe(verdicts)
  if claims then parts[#parts + 1] = claims end
  return table.concat(parts, "\n\n") .. "\n", claims
end

local function draw(spec, runs, given, folder)
  if given.no_plots then return end
  local ok, paths = pcall(runs.plot, runs, lists.extend({ out = folder }, spec.figures))
  if not ok then
    print("figures: " .. tostring(paths))
    return
  end
  for _, path in ipairs(paths) do print("picture: " .. path) end
end

--- The report with the document's tables, which the sweep's own lacks; beside the figures where those go elsewhere.
local function write_report(runs, options, folder)
  options.output = folder and folder .. "/report.html"
  local made, path = pcall(report.write, runs, options)
  print(made and "report: " .. path or "warning: report.html: " .. tostring(path))
end

--- Writes and prints what follows from results; the same after a sweep and for an old folder.
local function conclude(spec, runs, given, folder, plan)
  local sections = lists.map(spec.report and spec.report(runs, given) or {}, tostring)
  for _, section in ipairs(sections) do print("\n" .. section) end
  if given.verbose then
    print("\n" .. tostring(module_table().analyze.phases(runs)))
    print("\n" .. tostring(module_table().analyze.memory(runs)))
  end
  local verdicts = spec.expect and #runs.points > 1 and expect.judge(spec.expect, runs) or nil
  local text, claims = summary_text(runs, sections, verdicts)
  local at = folder or runs.path .. "/visualizations"
  native.files.write(at .. "/summary.txt", text)
  if spec.after then spec.after(runs, given, plan) end
  draw(spec, runs, given, folder)
  print("summary: " .. at .. "/summary.txt")
  write_report(runs, { texts = sections, claims = verdicts }, folder)
  return claims
end

local function draw_only(spec, given)
  local path = given.plots_only or given.input_dir
  local ok, runs = pcall(module_table().load, path)
  if not ok then usage.fail("%s: %s", spec.name, usage.plain(runs):gsub("^ms%.load: ", "")) end
  if runs:count("ok") == 0 then usage.fail("%s: expected results in %s, got none with status ok", spec.name, path) end
  print(runs)
  local claims = conclude(spec, runs, given, given.input_dir and given.output_dir or nil)
  if claims then print("\n" .. claims) end
end

--- The seed's own file of a single experiment, where --output names it.
local function write_single(spec, runs, given)
  local good = runs:select("ok")
  if #good ~= 1 then
    print(("%s: --output is for one experiment; %d points are ok, their files lie in %s"):format(spec.name, #good, runs.path))
    return
  end
  local point, content = good[1], nil
  if spec.seed_result then content = select(2, spec.seed_result(point.result, point)) end
  content = content or native.records.seed_result and native.records.seed_result(runs.path, point.id) or point.result
  if not spec.seed_result and point.asked and point.asked.mode then content.mode = point.asked.mode end
  native.files.write(given.output, native.records.to_json(content))
  print("result: " .. given.output)
end

--- Runs a document's script.
-- @tparam table spec name, about, presets, figures, expect, baseline, seed_result, flags, positional, output_dir,
-- plan (plan, given, preset) -> plan, report (runs, given) -> sections, after (runs, given, plan; no plan where only figures
-- are drawn), commands (flag name -> function (given, plan) that does something else than the sweep)
-- @tparam string ... words of the command line
-- @treturn Runs of the sweep; nil after --help, --dry-run and other commands
function M.main(spec, ...)
  local flags = document_flags.all(spec.flags, module_table().options())
  local given = arguments.parse(spec.name, { ... }, flags, spec.positional)
  if given.help then return print_help(spec, flags) end
  if given.plots_only or given.input_dir then return draw_only(spec, given) end
  local plan = plan_of(spec, given, flags)
  for name, command in pairs(spec.commands or {}) do
    if given[name] then return command(given, plan, spec) end
  end
  local options = {}
  for _, flag in ipairs(document_flags.of_sweep) do options[flag.name] = given[flag.name] end
  local runs = module_table().sweep(plan):run(options)
  if runs.is_dry then return nil end
  conclude(spec, runs, given, nil, plan)
  if given.output then write_single(spec, runs, given) end
  local left = runs:count("planned")
  if left > 0 then print(("%d points have not run: the same line with --resume %s runs them"):format(left, runs.path)) end
  return runs
end

return M
