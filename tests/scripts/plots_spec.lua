--- Figures: every one as a spec that the viewer reads, from whole, failed, odd and missing records; and drawn by the program.
local support = require "tests.support.support"
require "moonshard"
local made_up = require "tests.support.plot_records"
local native = require "moonshard.native"
local plots = require "moonshard.plots"

local null = native.null
local folder, run_folder

before_each(function()
  folder = support.memory_folder()
  run_folder = native.records.create(folder, "plots")
end)
after_each(function() support.remove(folder) end)

local sets = { "llama", "bottleneck", "zero", "linear", "dit", "single" }

-- What each document's figures must find in records of its kind.
local wanted = {
  llama = { "memory_comparison", "time_comparison", "memory_vs_time_tradeoff", "overhead_analysis", "phases" },
  bottleneck = { "scaling", "bottleneck", "layer_norm_times", "before_after" },
  zero = { "throughput_vs_batch", "memory_vs_batch", "communication_comparison", "gpu_utilization_heatmap", "overhead_breakdown" },
  linear = { "stage_memory" },
  dit = { "memory_breakdown_comparison", "memory_timeline", "performance_tradeoff" },
}

--- The spec as the viewer's own reader understands it; raises what it refuses.
local function checked(figure, spec)
  native.records.write_plot(run_folder, figure, spec)
  return support.parse_json(support.read(("%s/visualizations/%s.plot.json"):format(native.records.path(run_folder), figure)))
end

--- The same where only what the reader refuses is asked for.
local function written(figure, spec) native.records.write_plot(run_folder, figure, spec) end

--- All figures of results, each through the reader.
local function all_specs(results, read)
  local specs = {}
  read = read or checked
  for _, figure in ipairs(plots.figures) do
    local spec, reason = plots.spec(results, figure)
    if spec then
      specs[figure] = read(figure, spec)
    else
      assert.matches("^needs ", reason, 1, false)
    end
  end
  return specs
end

--- Status words of points without a figure, over all panels.
local function words_of(spec)
  local count = {}
  for _, panel in ipairs(spec.panels) do
    for _, series in ipairs(panel.series) do
      for i, y in ipairs(series.y) do
        if y == support.null then count[series.status[i]] = (count[series.status[i]] or 0) + 1 end
      end
    end
  end
  return count
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local result = {}
  for key, item in pairs(value) do result[key] = copy(item) end
  return setmetatable(result, getmetatable(value))
end

describe("figures", function()
  it("of each document are valid specs with titles, labels and series", function()
    for set, names in pairs(wanted) do
      local specs = all_specs(made_up[set]())
      for _, name in ipairs(names) do
        local spec = specs[name]
        assert.is_not_nil(spec, ("%s of %s"):format(name, set))
        assert.is_true(#spec.title > 0)
        for _, panel in ipairs(spec.panels) do
          assert.is_true(#panel.series > 0)
          local values = panel.kind == "heat_map" and panel.value or panel.y
          assert.is_true(#values.label > 0, name)
        end
      end
    end
  end)

  it("draw failed points as such, and once", function()
    local llama = all_specs(made_up.llama())
    assert.are.same({ oom = 1 }, words_of(llama.memory_comparison))
    assert.are.same({ oom = 1 }, words_of(llama.time_comparison))
    assert.are.same({ oom = 1 }, words_of(llama.memory_vs_time_tradeoff))
    assert.are.same({ oom = 2 }, words_of(llama.overhead_analysis))
    local zero = all_specs(made_up.zero())
    assert.are.same({ oom = 1, skipped = 2 }, words_of(zero.gpu_utilization_heatmap))
    assert.are.same({ oom = 1, skipped = 2 }, words_of(zero.throughput_vs_batch))
    local bottleneck = all_specs(made_up.bottleneck())
    assert.are.equal(2, words_of(bottleneck.scaling).timeout)  -- once for the times, once for memory
    assert.is_true(words_of(bottleneck.bottleneck).timeout > 0)
    assert.matches("oom", all_specs(made_up.llama({ "no_dp", "ghost_fsdp" })).memory_timeline.note, 1, true)
  end)

  it("say what they lack where nothing is good", function()
    for _, set in ipairs(sets) do
      local results = made_up[set]()
      for _, point in ipairs(results.points) do point.status, point.metrics, point.result = "failed", {}, {} end
      for _, figure in ipairs(plots.figures) do
        local spec, reason = plots.spec(results, figure)
        assert.is_nil(spec, figure)
        assert.matches("^needs ", reason, 1, false)
      end
      results.points = {}
      assert.is_nil((plots.spec(results, "phases")))
    end
  end)

  it("cope with any key that is missing, null or of another type", function()
    for _, set in ipairs(sets) do
      local whole = made_up[set]()
      for _, part in ipairs { "result", "metrics" } do
        for key in pairs(whole.points[1][part]) do
          for shift = 1, 2 do  -- each point lacks it in another way; twice, so that single ones meet two
            local results = copy(whole)
            for i, point in ipairs(results.points) do
              point[part][key] = ({ null, "text", 7, {} })[(i + shift) % 5 + 1]
            end
            all_specs(results, written)
          end
        end
      end
    end
  end)

  it("survive numbers and names that nobody meant", function()
    for _, set in ipairs(sets) do
      local results = made_up[set]()
      for i, point in ipairs(results.points) do
        point.options.model = "100%s\1\27[2J##name"
        for key in pairs(point.metrics) do
          point.metrics[key] = ({ 1e308, 0 / 0, 1 / 0, -1, 0, 5e-324 })[i % 6 + 1]
        end
      end
      all_specs(results)
    end
  end)

  it("take sixty categories", function()
    local modes = {}
    for i = 1, 20 do modes[i] = ("mode_with_a_long_name_%d"):format(i) end
    local specs = all_specs(made_up.llama(modes))
    assert.are.equal(60, #specs.phases.panels[1].x.categories)
    assert.are.equal(20, #specs.memory_comparison.panels[1].series)
  end)

  it("give a name the same colour in every figure of a folder", function()
    local colors = {}
    for figure, spec in pairs(all_specs(made_up.linear())) do
      for _, panel in ipairs(spec.panels) do
        for _, series in ipairs(panel.series) do
          if series.color and (series.name == "ddp" or series.name == "fsdp") then
            colors[series.name] = colors[series.name] or series.color
            assert.are.equal(colors[series.name], series.color, figure)
          end
        end
      end
    end
    assert.are_not.equal(colors.ddp, colors.fsdp)
  end)
end)

describe("a figure's contents", function()
  it("name a point by what tells it apart, not by what follows from it", function()
    local results = { axes = { "mode", "memory_budget_mb", "seq_length", "profile" }, points = {} }
    for _, mode in ipairs { "none", "auto" } do
      for _, length in ipairs { 64, 128 } do
        table.insert(results.points, { options = { mode = mode, memory_budget_mb = mode == "auto" and 10 * length or 0, seq_length = length,
          profile = length == 64 and mode == "auto" and "trace" or "layers" } })
      end
    end
    local varying = require("moonshard.plot_points").varying
    assert.are.same({ "mode", "seq_length" }, varying(results))
    results.points[5] = { options = { mode = "auto", memory_budget_mb = 5, seq_length = 64, profile = "layers" } }
    assert.are.same({ "mode", "memory_budget_mb", "seq_length" }, varying(results))
  end)

  it("leave out of names what follows from the model", function()
    local plot_points = require "moonshard.plot_points"
    local function point(model, batch, mode) return { options = { model = model, batch_size = batch, mode = mode, seq_length = 1024 },
      asked = { seq_length = 0 } } end
    local results = { axes = { "model", "batch_size", "mode" }, points = { point("a", 1, "none"), point("a", 1, "ghost"),
      point("b", 8, "none"), point("b", 8, "ghost") } }
    assert.are.same({ "model", "mode" }, plot_points.other_axes(results))
    results.points[5] = point("b", 16, "none")
    assert.are.same({ "model", "batch_size", "mode" }, plot_points.other_axes(results))
    -- 0 asks for the model's own length, which the record has.
    assert.are.equal(1024, plot_points.axis_value(results.points[1], "seq_length"))
  end)

  it("say what there is none of", function()
    local name = require("moonshard.plot_points").name
    local point = { options = { parallel = "fsdp", wrap = "none", backward_prefetch = "none", mode = "none" } }
    assert.are.equal("fsdp, no wrap, no backward prefetch, none", name(point, { "parallel", "wrap", "backward_prefetch", "mode" }))
    assert.are.equal("none", name(point, { "wrap" }))
  end)

  it("units follow the size of the figures", function()
    local large = plots.spec(made_up.llama(), "memory_comparison").panels[1]
    assert.are.equal("GiB", large.y.unit)
    local small = plots.spec(made_up.dit(), "memory_comparison").panels[1]
    assert.are.equal("MiB", small.y.unit)
    assert.near(made_up.dit().points[1].metrics.peak_memory_mb, small.series[1].y[1], 1e-6)
    local slow = made_up.dit()
    for _, point in ipairs(slow.points) do point.metrics.median_time_ms = 60000 end
    assert.are.equal("s", plots.spec(slow, "time_comparison").panels[1].y.unit)
  end)

  it("whiskers are the quartiles of the samples", function()
    local results = made_up.single()
    results.points[1].result.time.samples_ms = { 1, 2, 3, 4, 5 }
    results.points[1].metrics.median_time_ms = 3
    local series = plots.spec(results, "time_comparison").panels[1].series[1]
    assert.are.same({ 2, 4 }, { series.low[1], series.high[1] })
  end)

  it("overhead is memory and time above the baseline with the same length", function()
    local results = made_up.llama({ "no_dp", "flash_fsdp" }, { 1024, 2048 })
    for i, point in ipairs(results.points) do
      point.metrics.median_time_ms = ({ 10, 20, 15, 50 })[i]
      point.metrics.peak_memory_bytes = ({ 10, 20, 12, 25 })[i] * 2 ^ 20
    end
    local panels = plots.spec(results, "overhead_analysis").panels
    assert.are.same({ 2, 5 }, panels[1].series[1].y)
    assert.are.equal("MiB", panels[1].y.unit)
    assert.are.same({ 50, 150 }, { math.floor(panels[2].series[1].y[1] + 0.5), math.floor(panels[2].series[1].y[2] + 0.5) })
    assert.are.equal(1, #panels[1].series)  -- the baseline itself is no bar
  end)

  it("the parts of a breakdown add up to the measured peak", function()
    local results = made_up.dit()
    local panel = plots.spec(results, "memory_breakdown_comparison").panels[1]
    for i, point in ipairs(results.points) do
      local sum = 0
      for _, series in ipairs(panel.series) do sum = sum + series.y[i] end
      assert.near(point.metrics.peak_memory_mb, sum, 1e-6)
    end
  end)

  it("the phases of a timeline are stretches without gaps", function()
    local panel = plots.spec(made_up.dit(), "memory_timeline").panels[2]
    assert.are.equal("stacked_area", panel.kind)
    for i = 2, #panel.bands do assert.are.equal(panel.bands[i - 1].to, panel.bands[i].from) end
    assert.are.equal("data", panel.bands[1].label)
  end)

  it("growth carries the exponent of its fit", function()
    local panel = plots.spec(made_up.bottleneck(), "scaling").panels[1]
    local texts = {}
    for _, line in ipairs(panel.references) do texts[line.series] = line.text end
    assert.are.equal("T^1.00", texts.forward)
    assert.are.equal("T^0.00", texts.communication:gsub("%-?0%.0%d", "0.00"))
  end)

  it("the slowest layers come first, as many as asked for", function()
    local spec = plots.spec(made_up.bottleneck(), "layer_norm_times", { top = 5 })
    for _, panel in ipairs(spec.panels) do
      assert.are.equal(5, #panel.series[1].y)
      for i = 2, 5 do assert.is_true(panel.series[1].y[i] <= panel.series[1].y[i - 1]) end
    end
  end)

  it("a heat map without a GPU shows the processors and says so", function()
    local spec = plots.spec(made_up.zero("cpu"), "gpu_utilization_heatmap")
    assert.matches("CPU utilisation (no GPU was measured)", spec.title, 1, true)
    assert.are.equal(spec.panels[1].value.max, spec.panels[2].value.max)
  end)

  it("a heat map of a zip has only the rows that a group met", function()
    local results = { axes = { "model", "batch_size", "seq_length" }, points = {} }
    for i, row in ipairs { { "a", 1, 16 }, { "a", 2, 16 }, { "b", 1, 32 }, { "b", 2, 32 } } do
      results.points[i] = { status = "ok", options = { model = row[1], batch_size = row[2], seq_length = row[3] },
        asked = {}, metrics = { gpu_utilization_percent = 50, median_time_ms = 1 } }
    end
    local spec = plots.spec(results, "gpu_utilization_heatmap")
    for _, panel in ipairs(spec.panels) do
      assert.is_true(#panel.series >= 1)
      for _, series in ipairs(panel.series) do assert.are.equal(2, #series.y) end
    end
  end)
end)

describe("drawing", function()
  local program = support.program()

  --- A run folder on disk with the made-up records.
  local function on_disk(results)
    local points = {}
    for i, point in ipairs(results.points) do
      points[i] = { id = point.id, file = point.id .. "_result.json", asked = point.asked, options = point.options }
    end
    native.records.write_sweep(run_folder, { name = "plots", request = {}, axes = results.axes, points = points })
    for _, point in ipairs(results.points) do
      native.records.write_result(run_folder, point.id, { schema_version = 1, status = point.status, error = point.error,
        options = point.options, metrics = point.metrics, time = point.result.time, memory = point.result.memory })
    end
    return native.records.path(run_folder)
  end

  local function png_size(path)
    local header = support.read(path):sub(17, 24)
    local a, b, c, d, e, f, g, h = header:byte(1, 8)
    return ((a * 256 + b) * 256 + c) * 256 + d, ((e * 256 + f) * 256 + g) * 256 + h
  end

  it("several figures into another folder, in the size and scale that is asked for", function()
    local path = on_disk(made_up.dit())
    local result = support.run(("%s plot %s memory_comparison phases --out %s/pictures --size 640x400 --scale 1 --theme dark"):format(
      program, path, folder))
    assert.are.equal(0, result.code, result.err .. result.out)
    assert.are.equal(folder .. "/pictures/memory_comparison.png\n" .. folder .. "/pictures/phases.png\n", result.out)
    local width, height = png_size(folder .. "/pictures/phases.png")
    assert.are.same({ 640, 400 }, { width, height })
    assert.is_true(support.exists(folder .. "/pictures/phases.plot.json"))
    assert.is_false(support.exists(folder .. "/pictures/render.log"))
    assert.is_false(support.exists(path .. "/visualizations/phases.png"))
  end)

  it("all figures that apply, into the run folder", function()
    local path = on_disk(made_up.dit())
    local result = support.run(("%s plot %s"):format(program, path))
    assert.are.equal(0, result.code, result.err)
    for _, name in ipairs { "memory_breakdown_comparison", "memory_timeline", "performance_tradeoff", "time_comparison" } do
      assert.is_true(support.exists(("%s/visualizations/%s.png"):format(path, name)), name .. "\n" .. result.out)
    end
    assert.is_false(support.exists(path .. "/visualizations/throughput_vs_batch.png"))
  end)

  it("one of two that cannot be drawn is named, the other made", function()
    local path = on_disk(made_up.dit())
    local result = support.run(("%s plot %s phases throughput_vs_batch"):format(program, path))
    assert.are.equal(1, result.code)
    assert.matches("not drawn: 'throughput_vs_batch' needs points of several batch sizes", result.out, 1, true)
    assert.is_true(support.exists(path .. "/visualizations/phases.png"))
  end)

  it("mistakes in the words end in one line and code 2", function()
    local path = on_disk(made_up.single())
    for words, text in pairs {
      [""] = "plot: expected a run folder",
      [path .. " phasse"] = "did you mean 'phases'?",
      [path .. " --scale 9"] = "option '--scale': expected 1 to 4, got 9",
      [path .. " --theme blue"] = "expected light | dark, got 'blue'",
      [path .. " --size big"] = "option 'size': expected WIDTHxHEIGHT",
      [path .. " --skale 2"] = "did you mean '--scale'?",
    } do
      local result = support.run(("%s plot %s"):format(program, words))
      assert.are.equal(2, result.code, words .. ": " .. result.err)
      assert.matches(text, result.err, 1, true)
      assert.are.equal(1, select(2, result.err:gsub("\n", "")), result.err)
    end
  end)

  it("runs:plot refuses options it does not know, at the caller's line", function()
    local runs = require("moonshard").load(on_disk(made_up.single()))
    local ok, message = pcall(function() return runs:plot { "phases", outt = folder }, 1 end)
    assert.is_false(ok)
    assert.matches("plots_spec%.lua:%d+: runs:plot: unknown option 'outt'; did you mean 'out'%?", message)
  end)
end)
