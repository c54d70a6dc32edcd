--- Sweeps end to end: the run folder, points that fail, resuming, overhead, plots, a parent that is killed.
local support = require "tests.support.support"
local ms = require "moonshard"
local records = package.loaded["moonshard.native"].records

local program = support.program()
local folder

before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

--- Runs a sweep script with the program; the script's text may say OUT for the folder of runs.
local function run_script(text, options)
  support.write(folder .. "/sweep.lua", 'local ms = require "moonshard"\n' .. text:gsub("OUT", folder .. "/results"))
  options = options or {}
  options.folder = folder
  return support.run(("exec %s run %s/sweep.lua"):format(support.shell_quoted(program), folder), options)
end

--- The one run folder in results.
local function run_path()
  local names = support.list(folder .. "/results")
  assert.are.equal(1, #names, table.concat(names, " "))
  return folder .. "/results/" .. names[1]
end

local message_of = support.message_of

local tiny = [[model = "linear-tiny", device = "cpu", hidden_dim = 16, num_layers = 1, batch_size = 4, iters = 1, warmup = 0, threads = 1]]

describe("a sweep", function()
  it("writes the folder of the design, with the suites' files and keys", function()
    local result = run_script(([[
      local runs = ms.sweep { name = "first", out = "OUT", %s,
        grid = { mode = { "no_dp", "materialize" }, seq_length = { 8, 16 } } }:run()
      print(runs)]]):format(tiny))
    assert.are.equal(0, result.code, result.err)
    local path = run_path()
    assert.matches("/run_%d%d%d%d%d%d%d%d_%d%d%d%d%d%d_first$", path)
    assert.are.same({ "env.json", "index.csv", "index.jsonl", "materialize_seq16_result.json", "materialize_seq8_result.json",
      "no_dp_seq16_result.json", "no_dp_seq8_result.json", "points", "progress.json", "report.html", "summary.md", "summary.txt",
      "sweep.json" }, support.list(path))

    local sweep = support.parse_json(support.read(path .. "/sweep.json"))
    assert.are.equal(2, sweep.schema_version)
    assert.are.equal(16, sweep.common.hidden_dim)
    assert.is_nil(sweep.points[1].options.hidden_dim)
    assert.are.same({ "mode", "seq_length" }, sweep.axes)
    assert.are.equal(4, #sweep.points)
    assert.are.equal(1, support.parse_json(support.read(path .. "/env.json")).schema_version)

    local seed = support.parse_json(support.read(path .. "/no_dp_seq8_result.json"))
    assert.are.same({ "avg_time_ms", "batch_size", "config", "mode", "num_gpus", "peak_memory_gb", "peak_memory_mb", "seq_length",
      "total_batch_size" }, support.keys(seed))
    assert.are.same({ "learning_rate", "max_grad_norm", "model_name", "sigma", "vocab_size" }, support.keys(seed.config))
    assert.are.equal("no_dp", seed.mode)
    assert.are.equal(8, seed.seq_length)
    assert.are.equal("linear-tiny", seed.config.model_name)

    assert.are.equal(4, #support.list(path .. "/points"))
    for _, point in ipairs(sweep.points) do
      local at = path .. "/points/" .. point.id
      for _, name in ipairs { "result.json", "status", "log.rank0.txt" } do assert.is_true(support.exists(at .. "/" .. name), name) end
      assert.are.equal("ok\n", support.read(at .. "/status"))
      local record = support.parse_json(support.read(at .. "/result.json"))
      assert.are.equal("ok", record.status)
      assert.are.equal(1, record.schema_version)
      assert.are.equal(point.id, record.id)
      assert.matches("step 1: loss", support.read(at .. "/log.rank0.txt"))
    end

    local lines = {}
    for line in support.read(path .. "/index.csv"):gmatch("[^\r\n]+") do lines[#lines + 1] = line end
    assert.are.equal(5, #lines)
    assert.matches("^id,status,mode,seq_length,", lines[1])
    assert.matches("first: 4 points, 4 ok", support.read(path .. "/summary.txt"))
    assert.matches("Overhead against none", support.read(path .. "/summary.txt"))
    assert.matches("^# first: 4 points, 4 ok", support.read(path .. "/summary.md"))
    assert.matches("[4/4] mode=materialize seq_length=16: ", result.out, 1, true)
  end)

  it("goes on after a point that runs out of memory, and the program's exit code is 5", function()
    local result = run_script([[ms.sweep { out = "OUT", model = "linear-tiny", device = "cpu", batch_size = 512, iters = 1, warmup = 0,
      threads = 1, grid = { memory_limit_mb = { 1, 0 } } }:run()]])
    assert.are.equal(5, result.code, result.err)
    local runs = ms.load(run_path())
    assert.are.equal("oom", runs.points[1].status)
    assert.matches("memory: tried to allocate", runs.points[1].error)
    assert.are.equal("ok", runs.points[2].status)
    assert.are.equal("oom\n", support.read(run_path() .. "/points/" .. runs.points[1].id .. "/status"))
    assert.matches("oom: memory: tried", support.read(run_path() .. "/summary.txt"))
    assert.matches(",oom,", support.read(run_path() .. "/index.csv"), 1, true)
    assert.is_true(#tostring(runs) > 0)
  end)

  it("records a killed point with its last words, and resuming redoes that point alone", function()
    -- A stand-in for the program that kills itself for one of the points while a file says so.
    local prefix = folder .. "/prefix"
    os.execute(("mkdir -p %s/bin && ln -s %s %s/share"):format(prefix, (program:gsub("/bin/moonshard$", "/share")), prefix))
    support.write(prefix .. "/bin/moonshard", ([[#!/bin/sh
n=$(cat "%s/count" 2>/dev/null || echo 0); n=$((n + 1)); echo $n >"%s/count"
if [ -f "%s/kill" ] && [ $n = 2 ]; then echo "about to die"; kill -9 $$; fi
exec %s "$@"
]]):format(folder, folder, folder, program))
    os.execute("chmod +x " .. prefix .. "/bin/moonshard")
    support.write(folder .. "/kill", "")
    local text = ([[
      local again = arg[1]
      ms.sweep { out = "OUT", %s, grid = { mode = { "none" }, seq_length = { 8, 16, 32 } } }:run { resume = again }]]):format(tiny)
    local environment = { MOONSHARD_PREFIX = prefix }
    local result = run_script(text, { environment = environment })
    assert.are.equal(5, result.code, result.err)
    local path = run_path()
    local runs = ms.load(path)
    assert.are.equal("failed", runs.points[2].status)
    assert.matches("the process ended with signal 9 %(Killed%); last words: about to die", runs.points[2].error)
    assert.are.equal("failed\n", support.read(path .. "/points/" .. runs.points[2].id .. "/status"))
    assert.are.equal(2, runs:count("ok"))
    assert.is_false(support.exists(path .. "/none_seq16_result.json"))

    local function changed(i) return support.first_line("stat -c %y " .. path .. "/points/" .. runs.points[i].id .. "/result.json") end
    local before = { changed(1), changed(2), changed(3) }
    os.remove(folder .. "/kill")
    result = support.run(("exec %s run sweep.lua %s"):format(program, path), { folder = folder, environment = environment })
    assert.are.equal(0, result.code, result.err)
    assert.are.equal(before[1], changed(1))
    assert.are_not.equal(before[2], changed(2))
    assert.are.equal(before[3], changed(3))
    assert.matches("seq_length=8: already done", result.out)
    assert.are.equal(3, ms.load(path):count("ok"))
    assert.is_true(support.exists(path .. "/none_seq16_result.json"))
    assert.are.equal("4\n", support.read(folder .. "/count"))
  end)

  it("resume refuses a folder of another grid", function()
    local text = ([[ms.sweep { out = "OUT", %s, grid = { seq_length = { tonumber(arg[1]) } } }:run { resume = arg[2] }]]):format(tiny)
    support.write(folder .. "/sweep.lua", 'local ms = require "moonshard"\n' .. text:gsub("OUT", folder .. "/results"))
    assert.are.equal(0, support.run(program .. " run sweep.lua 8", { folder = folder }).code)
    local result = support.run(program .. " run sweep.lua 16 " .. run_path(), { folder = folder })
    assert.are.equal(1, result.code)
    assert.matches("expected the grid of .*, got a point it does not have %(seq_length=16%); start a new run", result.err)
    assert.matches("sweep.lua:2: ", result.err, 1, true)
    result = support.run(("%s run sweep.lua 16 %s/missing"):format(program, folder), { folder = folder })
    assert.matches(folder .. "/missing: expected a run folder with sweep.json, got nothing at that path", result.err, 1, true)
  end)
end)

describe("a sweep's mistakes", function()
  local function refused(spec, text)
    spec.out = folder .. "/results"
    local message = message_of(function() return ms.sweep(spec):run() end)
    assert.matches(text, message, 1, true)
    assert.matches("sweep_spec%.lua:%d+: ", message)
    assert.are.same({}, support.list(folder .. "/results"))
  end

  it("are raised at the caller's line before any folder is made", function()
    refused({ modle = "linear-tiny" }, "ms.sweep: unknown option 'modle'; did you mean 'model'?")
    refused({ gird = { mode = { "none" } } }, "ms.sweep: unknown option 'gird'; did you mean 'grid'? known: baseline, each, expect, grid,")
    refused({ tags = { 1 } }, "option 'tags': expected a list of texts, got 1")
    refused({ grid = { mdoe = { "none" } } }, "ms.sweep: unknown option 'mdoe'; did you mean 'mode'?")
    refused({ grid = { mode = { "none", "materialise" } } }, "got 'materialise'; did you mean 'materialize'?")
    refused({ grid = { iters = { 1, 0 } } }, "ms.sweep: option 'iters': expected an integer from 1 to 1000000000, got 0")
    refused({ model = "lama" }, "expected one of")
    refused({ grid = { mode = "none" } }, "ms.sweep: grid 'mode': expected a list of values, got none")
    refused({ grid = { mode = {} } }, "ms.sweep: grid 'mode': expected a list of values, got an empty table")
    refused({ grid = "none" }, "ms.sweep: option 'grid': expected a table { option = { values } }, got none")
    refused({ grid = { { "none" } } }, "ms.sweep: grid: expected names of options as keys, got 1")
    refused({ name = 5 }, "ms.sweep: option 'name': expected a text, got 5")
    refused({ name = "a/b" }, "ms.sweep: option 'name': expected a text without '/', got 'a/b'")
    assert.matches("ms.sweep: expected a table, got nil", message_of(ms.sweep))
  end)

  it("two points of the same effective options are refused by name", function()
    refused({ grid = { mode = { "none", "no_dp" } } },
      "ms.sweep: expected different points, got two of the same effective options (mode=no_dp)")
    refused({ grid = { seq_length = { 8, 8 } } }, "(seq_length=8)")
  end)

  it("a hole in a list and two spellings of one option are refused", function()
    refused({ grid = { mode = { "none", nil, "materialize" } } },
      "ms.sweep: grid 'mode': expected a list of values, got a hole or a name in it")
    refused({ grid = { mode = { "none", x = "materialize" } } }, "got a hole or a name in it")
    refused({ lr = 1, learning_rate = 2 }, "ms.sweep: option 'lr': expected it once, got it in two spellings")
    refused({ grid = { sigma = { 1 }, noise_multiplier = { 2 } } }, "option 'noise_multiplier': expected it once, got it in two spellings")
  end)

  it("an axis in the seeds' spelling is the option of the schema", function()
    local sweep = ms.sweep { model = "linear-tiny", grid = { sigma = { 0.5, 1 }, ["seq-length"] = { 8, 16 } } }
    assert.are.same({ "noise_multiplier", "seq_length" }, sweep.axes)
    assert.are.equal(4, #sweep.points)
    assert.are.equal(0.5, sweep.points[1].asked.noise_multiplier)
  end)

  it("an axis replaces what all points share, in whatever spelling", function()
    local sweep = ms.sweep { model = "linear-tiny", lr = 1, grid = { learning_rate = { 0.5, 0.25 } } }
    assert.are.equal(0.5, sweep.points[1].options.lr)
    assert.are.equal(0.25, sweep.points[2].options.lr)
  end)

  it("an option of run is checked", function()
    local spec = ms.sweep { model = "linear-tiny", out = folder .. "/results" }
    assert.matches("sweep:run: unknown option 'resme'; did you mean 'resume'?", message_of(spec.run, spec, { resme = "x" }), 1, true)
  end)

  it("a folder that cannot be made says why", function()
    local message = message_of(function() return ms.sweep({ model = "linear-tiny", out = "/proc/none" }):run() end)
    assert.matches("/proc/none: cannot make the folder: ", message, 1, true)
  end)

  it("tostring says what a sweep is", function()
    local sweep = ms.sweep { name = "x", model = "linear-tiny", grid = { mode = { "none", "materialize" }, seq_length = { 1, 2, 3 } } }
    assert.are.equal("Sweep x: 6 points over mode x seq_length", tostring(sweep))
  end)
end)

--- A run folder written by hand: mode and seq_length, with the given median times and peaks.
local function synthetic_folder(rows)
  local writer = records.create(folder .. "/made", "synthetic")
  local points = {}
  for i, row in ipairs(rows) do
    local resolved = ms.resolve { model = "linear-tiny", device = "cpu", mode = row.mode, seq_length = row.seq_length }
    points[i] = { id = resolved.id, options = resolved.options, file = ("%s_%d_result.json"):format(row.mode, i) }
  end
  records.write_environment(writer, ms.machine())
  records.write_sweep(writer, { name = "synthetic", axes = { "mode", "seq_length" }, points = points })
  for i, row in ipairs(rows) do
    local record = { schema_version = 1, status = row.status or "ok", options = points[i].options, error = row.error }
    if record.status == "ok" then
      record.metrics = { median_time_ms = row.time, avg_time_ms = row.time, peak_memory_mb = row.peak, peak_memory_gb = row.peak / 1024,
        tokens_per_s = 1000, final_loss = 0.5 }
    end
    records.write_result(writer, points[i].id, record)
    records.write_status(writer, points[i].id, record.status)
  end
  records.write_index(writer)
  return records.path(writer)
end

describe("results", function()
  local rows = {
    { mode = "none", seq_length = 8, time = 10, peak = 100 },
    { mode = "none", seq_length = 16, time = 20, peak = 200 },
    { mode = "materialize", seq_length = 8, time = 15, peak = 150 },
    { mode = "materialize", seq_length = 16, time = 80, peak = 250 },
  }

  it("overhead equals what is computed by hand", function()
    local overhead = ms.load(synthetic_folder(rows)):overhead { baseline = "no_dp" }
    assert.are.same({ "mode", "seq_length", "median ms", "time x", "95 % of time x", "peak MiB", "memory +MiB",
      "memory +%" }, overhead.columns)
    assert.are.same({
      { "none", 8, 10, 1, nil, 100, 0, 0 },
      { "none", 16, 20, 1, nil, 200, 0, 0 },
      { "materialize", 8, 15, 1.5, nil, 150, 50, 50 },
      { "materialize", 16, 80, 4, nil, 250, 50, 25 },
    }, overhead.rows)
    assert.matches("materialize", tostring(overhead))
  end)

  it("overhead along another axis", function()
    local overhead = ms.load(synthetic_folder(rows)):overhead { axis = "seq_length", baseline = 8 }
    assert.are.equal(2, overhead.rows[2][4])
    assert.are.equal(80 / 15, overhead.rows[4][4])
  end)

  it("a missing baseline and a misspelt option are errors at the caller's line", function()
    local runs = ms.load(synthetic_folder { rows[3], rows[4] })
    local message = message_of(function() return runs:overhead(), 1 end)
    assert.matches("sweep_spec%.lua:%d+: runs:overhead: expected a point with mode = 'none' as the baseline, got none", message)
    message = message_of(function() return runs:overhead { basline = "none" }, 1 end)
    assert.matches("sweep_spec%.lua:%d+: runs:overhead: unknown option 'basline'; did you mean 'baseline'%?", message)
  end)

  it("points without a result are shown with their status and left out of figures", function()
    local runs = ms.load(synthetic_folder { rows[1], rows[2], rows[3],
      { mode = "materialize", seq_length = 16, status = "oom", error = "memory: too much" } })
    local overhead = runs:overhead()
    assert.are.same({ "materialize", 16, "oom" }, overhead.rows[4])
    assert.matches("oom", runs:table())
    assert.are.equal(3, runs:count("ok"))
    assert.are.equal(1, #runs:select("oom"))
    assert.are.equal(2, #runs:select(function(point) return point.options.seq_length == 8 end))
  end)

  it("a baseline that failed leaves its partners without a ratio", function()
    local overhead = ms.load(synthetic_folder { { mode = "none", seq_length = 8, status = "failed", error = "x" }, rows[3] }):overhead()
    assert.are.same({ "materialize", 8, 15, nil, nil, 150 }, overhead.rows[2])
  end)

  it("a damaged result is one unreadable point, not a damaged run", function()
    local path = synthetic_folder(rows)
    local id = ms.load(path).points[2].id
    support.write(path .. "/points/" .. id .. "/result.json", '{"status": "ok", "metr')
    local runs = ms.load(path)
    assert.are.equal("unreadable", runs.points[2].status)
    assert.are.equal(3, runs:count("ok"))
    assert.are.equal(1, #runs.problems)
    assert.is_true(#tostring(runs) > 0)
  end)

  it("a folder that is none says what was expected", function()
    assert.matches("expected a run folder with sweep.json, got a folder without one", message_of(ms.load, folder), 1, true)
    assert.matches("expected a run folder with sweep.json, got nothing at that path", message_of(ms.load, folder .. "/none"), 1, true)
    assert.matches("ms.load: argument 1: expected a text (folder), got nil", message_of(ms.load), 1, true)
  end)
end)

describe("plots", function()
  local function draw(rows, figure)
    local path = synthetic_folder(rows)
    support.write(folder .. "/draw.lua", ([[
      local ms = require "moonshard"
      for _, made in ipairs(ms.load("%s"):plot "%s") do print("made " .. made) end]]):format(path, figure))
    return support.run(program .. " run draw.lua", { folder = folder }), path
  end
  local rows = {
    { mode = "none", seq_length = 8, time = 10, peak = 100 },
    { mode = "materialize", seq_length = 8, time = 15, peak = 150 },
    { mode = "materialize", seq_length = 16, status = "oom", error = "memory" },
  }

  it("all makes the suites' four figures as valid specs", function()
    local result, path = draw(rows, "all")
    assert.are.equal(0, result.code, result.err)
    for _, name in ipairs { "memory_comparison", "time_comparison", "memory_vs_time_tradeoff", "overhead_analysis" } do
      local spec = support.parse_json(support.read(("%s/visualizations/%s.plot.json"):format(path, name)))
      assert.are.equal(1, spec.schema_version)
      assert.is_true(#spec.title > 0 and #spec.panels > 0)
      for _, panel in ipairs(spec.panels) do
        assert.is_true(#panel.series > 0)
        for _, series in ipairs(panel.series) do assert.are.equal(#series.x, #series.y) end
      end
      assert.matches("made .*/visualizations/" .. name .. "%.", result.out)
    end
    local spec = support.parse_json(support.read(path .. "/visualizations/overhead_analysis.plot.json"))
    assert.are.equal(50, spec.panels[1].series[1].y[1])
    assert.are.equal(50, spec.panels[2].series[1].y[1])
    assert.are.equal(support.null, spec.panels[1].series[1].y[2])
  end)

  it("a misspelt figure names the nearest, at the caller's line", function()
    local runs = ms.load(synthetic_folder(rows))
    local message = message_of(function() return runs:plot("memory_comparisn"), 1 end)
    assert.matches("runs:plot: expected 'all' or one of memory_comparison, ", message, 1, true)
    assert.matches(", got 'memory_comparisn'; did you mean 'memory_comparison'?", message, 1, true)
    assert.matches("sweep_spec%.lua:%d+: ", message)
  end)

  it("a figure that nothing can be drawn in says what it needs", function()
    local failed = { { mode = "none", seq_length = 8, status = "failed", error = "x" } }
    local runs = ms.load(synthetic_folder(failed))
    local message = message_of(function() return runs:plot("time_comparison"), 1 end)
    assert.matches("runs:plot: 'time_comparison' needs points with status ok", message, 1, true)
    assert.matches("sweep_spec%.lua:%d+: ", message)
    assert.are.same({}, runs:plot("all"))
  end)
end)

describe("a parent that is killed", function()
  it("leaves a readable folder, no child beyond two seconds, and a sweep that can go on", function()
    support.write(folder .. "/sweep.lua", ([[
      local ms = require "moonshard"
      local iters = { 1, tonumber(arg[1]) }
      ms.sweep { out = "%s/results", model = "linear-tiny", device = "cpu", hidden_dim = 16, num_layers = 1, batch_size = 4, warmup = 0,
        threads = 1, grid = { iters = iters } }:run { resume = arg[2], timeout = arg[2] and 1 or nil }]]):format(folder))
    os.execute(("cd %s && { %s run sweep.lua 1000000 >out 2>&1 & echo $! >pid; }"):format(folder, program))
    local parent = tonumber(support.read(folder .. "/pid"))
    local function children()
      local ids = {}
      for _, id in ipairs(support.processes_with(folder .. "/results")) do
        if id ~= parent then ids[#ids + 1] = id end
      end
      return ids
    end
    local function second_runs()
      local names = support.list(folder .. "/results")
      if #names == 0 then return false end
      local ok, runs = pcall(ms.load, folder .. "/results/" .. names[1])
      return ok and #runs.points == 2 and runs.points[1].status == "ok" and runs.points[2].status == "running" and #children() > 0
    end
    assert.is_true(support.wait_for(second_runs, 15), "the second point did not start: " .. tostring(support.read(folder .. "/out")))
    os.execute("kill -9 " .. parent)
    assert.is_true(support.wait_for(function() return #children() == 0 end, 2), "a child survived")

    local path = run_path()
    local runs = ms.load(path)
    assert.are.equal("ok", runs.points[1].status)
    assert.are_not.equal("ok", runs.points[2].status)
    assert.are.same({}, runs.problems)

    -- The unfinished point is ended by its time limit: it would run for an hour.
    local result = support.run(("exec %s run sweep.lua 1000000 %s"):format(program, path), { folder = folder, seconds = 30 })
    assert.are.equal(5, result.code, result.err)
    assert.matches("iters=1: already done", result.out)
    assert.are.equal("timeout", ms.load(path).points[2].status)
  end)
end)
