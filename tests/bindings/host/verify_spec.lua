--- moonshard verify from outside: tables, JSON, exit codes, deliberate mistakes.
local support = require "tests.support.support"

local quoted = support.shell_quoted(support.program())
local function run(words) return support.run(quoted .. " " .. words, { folder = "/tmp" }) end

describe("verify", function()
  it("prints engines by number format, and exits 0 when all cells hold", function()
    local result = run("verify --model linear-tiny")
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("^engine +format +cells +failed +largest error +allowed\n", result.out)
    for _, engine in ipairs { "none", "materialize", "ghost", "flash", "bookkeeping", "flash_bookkeeping", "auto" } do
      for format, allowed in pairs { float64 = "1e%-10", float32 = "1e%-05", bfloat16 = "1e%-03" } do
        assert.matches("\n" .. engine .. " +" .. format .. " +%d+ +0 +%S+ +" .. allowed, result.out)
      end
    end
    local hold, all = result.out:match("\n(%d+) of (%d+) cells hold %(%d+ s%)\n$")
    assert.are.equal(hold, all)
    assert.is_true(tonumber(all) > 200)
    -- Of each model and task as soon as it is known, for runs that take long.
    assert.matches(("verify: linear%%-tiny regress: %s of %s cells hold, after %%d+ s\n"):format(hold, all), result.err)
  end)

  it("answers the three questions about norms on several ranks, by the document's own flags", function()
    local words = "verify --model linear-tiny --engine flash --dtype float32 --options default --device cpu --nproc 2 --use-fsdp"
    local result = run(words .. " --verbose --enable-profiling")
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("norms before ranks put them together differ: yes, on 2 ranks", result.out, 1, true)
    assert.matches("norms afterwards are the same on all ranks: yes", result.out, 1, true)
    assert.matches("norms are those of one process: yes", result.out, 1, true)
    assert.matches("squared norms of this rank", result.out .. result.err, 1, true)
    local report = support.parse_json(run(words .. " --json").out)
    assert.are.equal(3, #report.diagnoses)
    assert.is_true(report.diagnoses[1].good)
  end)

  it("--json has every cell with its error", function()
    local result = run("verify --model linear-tiny --json")
    assert.are.equal(0, result.code, result.err)
    local report = support.parse_json(result.out)
    assert.are.equal(0, report.failed)
    local engines = {}
    for _, cell in ipairs(report.cells) do
      for _, key in ipairs { "engine", "model", "layer", "options", "dtype", "max_rel_err", "ok", "task", "tolerance", "worst" } do
        assert.is_not_nil(cell[key], key)
      end
      assert.is_true(cell.ok and cell.max_rel_err <= cell.tolerance)
      assert.are.equal("linear-tiny", cell.model)
      engines[cell.engine] = true
    end
    assert.are.equal(7, #support.keys(engines))
  end)

  it("finds every deliberate mistake, names the cells and exits 4", function()
    for fault, words in pairs {
      no_bias_term = "--model linear-tiny --options default",
      wrong_denominator = "--model linear-tiny --options default",
      micro_step_norm = "--model linear-tiny --options accumulation",
      no_padding_rule = "--model llama3-tiny --options padding",
      no_cross_term = "--model qwen2.5-tiny --options batch_of_1",
    } do
      local result = run(("verify %s --engine flash_bookkeeping --dtype float64 --fault %s"):format(words, fault))
      assert.are.equal(4, result.code, fault .. ": " .. result.out .. result.err)
      assert.matches("\nFAILED flash_bookkeeping [^\n]+, layer [^\n]+: [%a ]+ off by [^\n]+, allowed 1e%-10\n", result.out)
      local hold, all = result.out:match("\n(%d+) of (%d+) cells hold")
      assert.is_true(tonumber(hold) < tonumber(all))
    end
    local report = support.parse_json(run("verify --model linear-tiny --fault no_bias_term --json").out)
    assert.is_true(report.failed > 0)
    -- Adapters have no biases. A group of biases without a norm takes no part, which may hide what another group has too much.
    for _, cell in ipairs(report.cells) do
      local is_blind = cell.engine == "none" or cell.options:find "^lora" ~= nil
      if cell.options ~= "neighbour+groups" then assert.are.equal(is_blind, cell.ok, cell.options) end
    end
  end)

  it("--verbose prints norms before and after clipping beside the reference", function()
    local result = run("verify --model linear-tiny --engine ghost --options default --dtype float64 --verbose")
    assert.are.equal(0, result.code, result.err)
    assert.matches("^ghost linear%-tiny regress, default, float64, bound %S+, clipping acts on %d+ %%\n", result.out)
    local function row(name)
      local list = {}
      for number in result.out:match("\n  " .. name .. " +([^\n]+)\n"):gmatch("%S+") do list[#list + 1] = tonumber(number) end
      assert.are.equal(5, #list)
      return list
    end
    local before, reference, after = row "norm before", row "reference", row "norm after"
    assert.are.same(reference, before)
    local bound, clipped = tonumber(result.out:match("bound (%S+),")), 0
    for i, norm in ipairs(before) do
      assert.is_true(after[i] <= bound * (1 + 1e-5) and after[i] <= norm)
      if after[i] < norm then clipped = clipped + 1 end
    end
    assert.is_true(clipped > 0 and clipped < 5)
  end)

  it("unknown names exit 2 with the nearest, before any work", function()
    for words, text in pairs {
      ["--engine gohst"] = "flash_bookkeeping, auto, got 'gohst'; did you mean 'ghost'?",
      ["--model linear-tyni"] = "got 'linear-tyni'; did you mean 'linear-tiny'?",
      ["--options acumulation"] = "got 'acumulation'; did you mean 'accumulation'?",
      ["--dtype float16"] = "expected one of float64, float32, bfloat16, got 'float16'",
      ["--fault no_bias"] = "verify: option 'fault': expected one of no_bias_term, ",
      ["--engin ghost"] = "unknown option 'engin'; did you mean 'engine'?",
      ["--model linear-tiny --options padding"] = "expected options that name at least one cell, got none",
    } do
      local result = run("verify " .. words)
      assert.are.equal(2, result.code, words .. ": " .. result.out)
      assert.matches(text, result.err, 1, true)
      assert.are.equal("", result.out, words)
    end
  end)
end)
