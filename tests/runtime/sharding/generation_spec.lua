--- Text from a model in parts: what one process makes, whoever holds which part.
local support = require "tests.support.support"

local quoted = support.shell_quoted(support.program())

local script = [[
local ms = require "moonshard"
local prompts = { { 5, 6, 7 }, { 9 }, { 11, 12, 13, 14, 15 }, { 3, 2 }, { 8, 1, 4 } }
for _, parallel in ipairs { ms.fsdp {}, ms.fsdp { sharding = "zero2" }, ms.fsdp { sharding = "zero2_replicated" }, ms.ddp {},
  ms.fsdp { reshard_root = true, policies = { { units = "*.0", offload = true }, { units = "*.1", dtype = "float32" } } },
  ms.fsdp { policies = { { units = "root", dtype = "float32", reshard = true } } } } do
  local model = ms.model("qwen2.5-tiny", { device = "cpu", dtype = "float64", task = "lm", seed = 0 })
  local trainer = ms.trainer { model = model, optimizer = ms.optim.sgd { lr = 0.1 }, clip = ms.clip "none", parallel = parallel,
    data = ms.data.synthetic { batch_size = 12 / ms.dist.world(), seq_length = 8 } }
  local function made_of(subject, options)
    options = { prompt = prompts, max_new_tokens = 9, stop = 584, temperature = options.temperature, seed = options.seed,
      top_p = options.top_p, batch_size = subject == trainer and options.batch_size or nil }
    local made, lines = subject:generate(options), {}
    for i, ids in ipairs(made.ids) do lines[i] = made.ended[i] .. " " .. table.concat(ids, " ") end
    return table.concat(lines, "; ")
  end
  for _, options in ipairs { { temperature = 0 }, { seed = 3, batch_size = 2, top_p = 0.9 } } do
    local in_parts = made_of(trainer, options)
    print("all", in_parts)
    trainer:gather()  -- whole weights give the same
    assert(made_of(model, options) == in_parts)
  end
  trainer:step()  -- and training goes on, with weights that generation sees
  local later = made_of(trainer, { seed = 4 })
  trainer:gather()
  assert(made_of(model, { seed = 4 }) == later)
  trainer:close()
end
]]

describe("generation on real ranks", function()
  it("equals one process, under every wrapper, for all ranks", function()
    local folder = support.temporary_folder()
    support.write(folder .. "/script.lua", script)
    local texts = {}
    for _, ranks in ipairs { 1, 2 } do
      local command = ("%s run --nproc %d --log-dir %s/logs%d script.lua"):format(quoted, ranks, folder, ranks)
      local result = support.run(command, { folder = folder, seconds = 120 })
      assert.are.equal(0, result.code, result.out .. result.err)
      texts[ranks] = result.out
    end
    assert.are.equal(texts[1], texts[2])
    local second = support.read(folder .. "/logs2/log.rank1.txt")
    support.remove(folder)
    assert.are.equal(12, select(2, texts[1]:gsub("all\t", "")))
    assert.is_truthy(second:find(texts[1], 1, true), second)
  end)
end)
