--- ms.trainer and memory: what cannot fit is refused before anything is made, with advice.
local support = require "tests.support.support"
local ms = require "moonshard"

local function trainer_of(batch_size, options)
  local all = { model = ms.model("llama3-tiny"), data = ms.data.synthetic { batch_size = batch_size, seq_length = 1024 },
    optimizer = ms.optim.adam {} }
  for key, value in pairs(options or {}) do all[key] = value end
  return function() return ms.trainer(all) end
end

describe("ms.trainer", function()
  it("refuses a batch that cannot fit, with the largest that would and what saves memory", function()
    local message = support.message_of(trainer_of(2 ^ 20))
    assert.truthy(message:find "trainer: llama3%-tiny cannot fit: expected at most")
    assert.truthy(message:find "check_memory = false")
    local batch = tonumber(message:match "batch_size = (%d+)")
    assert.is_true(batch > 1 and batch < 2 ^ 20)
    assert.truthy(message:find "the largest batch that is predicted to fit")
    assert.truthy(message:find "checkpointing = block")
  end)

  it("makes it all the same with check_memory = false, and what fits without a word", function()
    trainer_of(2 ^ 20, { check_memory = false })():close()
    local trainer = trainer_of(1)()
    assert.is_true(trainer:step().loss > 0)
    trainer:close()
  end)
end)
