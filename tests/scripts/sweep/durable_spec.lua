--- What a full disk, an edited file, a planted link or a hostile record can do to a sweep: nothing but a clear word.
local support = require "tests.support.sweeps"
local ms = require "moonshard"

local place

before_each(function() place = support.place() end)
after_each(function() place:remove() end)

local own_run = [[run = function(point) return { score = point.x } end]]

--- A finished sweep of two points; gives its folder.
local function finished()
  place:script(([[ms.sweep { out = "OUT", grid = { x = { 1, 2 } }, %s }:run()]]):format(own_run))
  local result = place:run("run sweep.lua")
  assert.are.equal(0, result.code, result.err)
  return place:run_path()
end

local function resume(path) return place:run("run sweep.lua --resume " .. path) end

local function edit(path, pattern, replacement)
  local text, count = support.read(path):gsub(pattern, replacement)
  assert.is_true(count > 0, pattern)
  support.write(path, text)
end

describe("a sweep whose files cannot be written", function()
  it("warns once of progress.json, gives the folder and Ctrl-C back, and can go on in the same process", function()
    place:script([[
      local function sh(command) os.execute("cd OUT/run_* && " .. command) end
      local sweep = ms.sweep { out = "OUT", grid = { x = { 1, 2 } }, run = function(point)
        if point.x == 1 then sh "rm -f progress.json && mkdir progress.json" end
        if point.x == 2 then sh "[ -e again ] || { touch again; mv sweep.json away; }" end
        return { score = point.x }
      end }
      local ok, why = pcall(sweep.run, sweep)
      print("first", ok, why)
      sh "mv away sweep.json"
      local path = io.popen("ls -d OUT/run_*"):read "*l"
      print("second", sweep:run { resume = path }:count "ok")
      os.execute "(sleep 0.3; kill -INT $PPID) &"  -- system() itself ignores the signal
      local began = os.time()
      repeat until os.time() - began > 5
      print "deaf"]])
    local result = place:run("run sweep.lua", { seconds = 40 })
    local _, warnings = result.out:gsub("warning: progress.json: [^\n]*expected the name of a file, got a folder", "")
    assert.are.equal(2, warnings, result.out .. result.err)
    assert.matches("first\tfalse\t[^\n]*sweep.json", result.out)
    assert.matches("second\t2", result.out)
    assert.not_matches("deaf", result.out)
    assert.are.equal(130, result.code, result.err)
  end)

  it("does not end with exit code 0 without its summary", function()
    place:script([[ms.sweep { out = "OUT", grid = { x = { 1 } }, run = function()
      os.execute("mkdir OUT/run_*/points/../summary.txt || mkdir $(ls -d OUT/run_*)/summary.txt")
      return { score = 1 } end }:run()]])
    local result = place:run("run sweep.lua")
    assert.matches("warning: summary.txt: ", result.out, 1, true)
    assert.are.equal(1, result.code, result.err)
  end)
end)

describe("a resumed sweep", function()
  it("refuses a record that was edited, and names the file and the option", function()
    local path = finished()
    local id = ms.load(path).points[2].id
    edit(("%s/points/%s/result.json"):format(path, id), '"x": 2', '"x": 3')
    local result = resume(path)
    assert.are.equal(1, result.code)
    assert.matches(("points/%s/result.json: was changed after it was written; options.x: expected 2 as in sweep.json, got 3"):format(id),
      result.err, 1, true)
    assert.matches("was changed after it was written", ms.load(path).problems[1], 1, true)
    local doctor = place:run("doctor " .. path)
    assert.are.equal(1, doctor.code)
    assert.matches("result.json: was changed after it was written: its digest is another", doctor.out, 1, true)
  end)

  it("refuses a record of another point", function()
    local path = finished()
    local points = ms.load(path).points
    os.execute(("cp %s/points/%s/result.json %s/points/%s/result.json"):format(path, points[1].id, path, points[2].id))
    assert.matches("is the record of point " .. points[1].id, resume(path).err, 1, true)
  end)

  it("refuses a grid that was edited, with or without its digest", function()
    local path = finished()
    edit(path .. "/sweep.json", '{"x":2}', '{"x":7}')
    local wanted = "option 'x': expected 2, got 7; the file was changed after it was written"
    assert.matches(wanted, resume(path).err, 1, true)
    edit(path .. "/sweep.json", ',\n  "digest": "%x+"', "")
    assert.matches(wanted, resume(path).err, 1, true)
    assert.matches("options.x: expected 7 as in sweep.json, got 2", place:run("doctor " .. path).out, 1, true)
  end)

  it("goes on with a folder whose files carry no digest yet, and doctor says so", function()
    local path = finished()
    edit(path .. "/sweep.json", ',\n  "digest": "%x+"', "")
    for _, point in ipairs(ms.load(path).points) do
      edit(("%s/points/%s/result.json"):format(path, point.id), ',\n  "digest": "%x+"', "")
    end
    local result = resume(path)
    assert.are.equal(0, result.code, result.err)
    assert.matches("2 done, nothing to do", result.out, 1, true)
    assert.matches("2 records carry no digest", place:run("doctor " .. path).out, 1, true)
  end)
end)

describe("a folder with links that lead out", function()
  it("is not written through them by --resume, plot and export", function()
    local path, outside = finished(), place.path .. "/outside"
    local id = ms.load(path).points[2].id
    local point = ("%s/points/%s"):format(path, id)
    support.write(outside .. "_log", "mine\n")
    os.execute(("mkdir %s; cd %s; rm result.json log.rank0.txt; ln -s %s_log log.rank0.txt"):format(outside, point, outside))
    resume(path)
    assert.are.equal("mine\n", support.read(outside .. "_log"))

    os.execute(("rm -r %s; ln -s %s %s"):format(point, outside, point))
    local result = resume(path)
    assert.matches("leads out of the run folder; nothing is written there", result.out .. result.err, 1, true)
    for _, name in ipairs { "visualizations", "tensorboard" } do os.execute(("ln -s %s %s/%s"):format(outside, path, name)) end
    for _, words in ipairs { "plot %s --name time_comparison", "export %s --format tensorboard" } do
      local said = place:run(words:format(path))
      assert.are_not.equal(0, said.code, words)
    end
    assert.are.same({}, support.list(outside))
  end)
end)

describe("a hostile record", function()
  it("is read without what is of another kind, which is named, and every command has words for it", function()
    place:script([[ms.sweep { out = "OUT", TINY, grid = { mode = { "none", "ghost" } } }:run()]])
    assert.are.equal(0, place:run("sweep sweep.lua").code)
    local path = place:run_path()
    local record = ("%s/points/%s/result.json"):format(path, ms.load(path).points[2].id)
    local whole = support.read(record)
    local hostile = {
      ['"median_time_ms": [%d.e-]+'] = '"median_time_ms": "soon"',
      ['"peak_memory_mb": [%d.]+'] = '"peak_memory_mb": {}',
      ['"samples_ms": %b[]'] = '"samples_ms": ["a", {}]',
      ['"time": %b{}'] = '"time": 7',
      ['"steps": %b[]'] = '"steps": [1, "x", {"step": "y"}]',
      ['"seq_length": %d+'] = '"seq_length": "long"',
      ['"memory": %b{}'] = '"memory": {"breakdown": 3, "peak_bytes": "x"}',
      ['"metrics": %b{}'] = '"metrics": [1]',
      ['"options": %b{}'] = '"options": 1',
      ['"memory_stages": %b[]'] = '"memory_stages": {"a": 1}',
    }
    for pattern, replacement in pairs(hostile) do
      edit(record, pattern, (replacement:gsub("%%", "%%%%")))
      for _, words in ipairs { "compare %s %s", "export %s --format csv", "export %s --format tensorboard", "report %s", "plot %s" } do
        local result = place:run((words:gsub("%%s", path)))
        assert.not_matches("attempt to", result.out .. result.err, replacement .. ": " .. words)
      end
      support.write(record, whole)
    end
  end)
end)

describe("cells of a table", function()
  it("that a spreadsheet would take for a formula are defused", function()
    place:script([[ms.sweep { out = "OUT", grid = { x = { "=1+1", "-2", "@a", "+b,c" } },
      run = function() return { score = -1.5 } end }:run()]])
    assert.are.equal(0, place:run("run sweep.lua").code)
    local index = support.read(place:run_path() .. "/index.csv")
    for _, cell in ipairs { ",'=1+1,", ",-2,", ",'@a,", ',"\'+b,c",', ",-1.5," } do assert.matches(cell, index, 1, true) end
    local exported = place:run(("export %s --format csv"):format(place:run_path())).out
    assert.matches("'=1+1,", exported, 1, true)
  end)
end)
