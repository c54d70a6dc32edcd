--- Options of optimizers: schedules, groups without weight decay, Adam without the noise's part of the mean square.
local ms = require "moonshard"

local function model()
  return ms.model("llama3-tiny", { task = "lm", vocab_size = 40, hidden_dim = 16, intermediate_dim = 32, num_layers = 1, device = "cpu",
    dtype = "float64", seed = 4 })
end
local function after_step(optimizer, more)
  local parts = { model = model(), optimizer = optimizer, data = ms.data.synthetic { batch_size = 2, seq_length = 8 } }
  for key, value in pairs(more or {}) do parts[key] = value end
  local trainer = ms.trainer(parts)
  local report = trainer:step()
  return parts.model, report
end
local function largest_difference(a, b) return (a - b):abs():max():item() end

describe("a schedule", function()
  it("falls with the root of the steps after its warm-up", function()
    local trainer = ms.trainer { model = model(), data = ms.data.synthetic { batch_size = 1, seq_length = 4 },
      optimizer = ms.optim.sgd { lr = 0.4, lr_schedule = "inverse_sqrt", lr_warmup_steps = 4 } }
    local seen = {}
    for step = 1, 16 do seen[step] = trainer:step().lr end
    assert.is_near(0.1, seen[1], 1e-12)
    assert.is_near(0.4, seen[4], 1e-12)
    assert.is_near(0.4 * math.sqrt(4 / 9), seen[9], 1e-12)
    assert.is_near(0.2, seen[16], 1e-12)
  end)
end)

describe("weight decay", function()
  it("leaves out the groups that are named", function()
    local function adamw(decay, no_decay) return (after_step(ms.optim.adamw { lr = 0.1, weight_decay = decay, no_decay = no_decay })) end
    local plain, decayed, grouped = adamw(0), adamw(0.5), adamw(0.5, "norms, *embed_tokens*")
    local free = 0
    for _, name in ipairs(plain.parameters) do
      local is_free = name:find "norm" or name:find "embed_tokens"
      local wanted = is_free and plain or decayed
      assert.are.equal(0, largest_difference(wanted:parameter(name), grouped:parameter(name)), name)
      assert.is_true(largest_difference(plain:parameter(name), decayed:parameter(name)) > 1e-3, name)
      free = free + (is_free and 1 or 0)
    end
    assert.is_true(free >= 3 and free < #plain.parameters)
    local _, message = pcall(adamw, 0.5, "*no_such*")
    assert.matches("got '%*no_such%*', which matches none", message)
  end)
end)

describe("noise_correction", function()
  it("takes the noise's variance out of Adam's mean square, down to a floor", function()
    local sigma, bound, batch, lr, floor = 0.8, 0.5, 2, 0.01, 1e-3
    local private = { clip = ms.clip("materialize", { noise_multiplier = sigma, max_grad_norm = bound }), privacy = { secure = false } }
    local start = model()
    local by_sgd = after_step(ms.optim.sgd { lr = 1 }, private)
    local by_adam = after_step(ms.optim.adam { lr = lr, noise_correction = true, noise_floor = floor }, private)
    local variance = (sigma * bound / batch) ^ 2
    local corrected, floored = 0, 0
    for _, name in ipairs { "model.norm.weight", "model.layers.0.self_attn.q_proj.weight" } do
      local before, sgd = start:parameter(name):reshape(-1):tolist(), by_sgd:parameter(name):reshape(-1):tolist()
      for i, got in ipairs(by_adam:parameter(name):reshape(-1):tolist()) do
        local gradient = before[i] - sgd[i]
        local left = gradient * gradient - variance
        if left > floor then corrected = corrected + 1 else floored = floored + 1 end
        assert.is_near(before[i] - lr * gradient / math.sqrt(math.max(left, floor)), got, 1e-9)
      end
    end
    assert.is_true(corrected > 10 and floored > 10)
    local _, message = pcall(ms.trainer, { model = start, optimizer = ms.optim.sgd { noise_correction = true } })
    assert.matches("expected optimizer adam or adamw, got sgd", message)
  end)
end)

describe("clip_global_norm", function()
  it("scales the mean gradient down to the norm, and leaves smaller ones alone", function()
    local start = model()
    local plain, report = after_step(ms.optim.sgd { lr = 1 }, { clip_global_norm = 1e6 })
    local clipped = after_step(ms.optim.sgd { lr = 1 }, { clip_global_norm = report.grad_norm / 4 })
    local squares = 0
    for _, name in ipairs(start.parameters) do
      local step, smaller = plain:parameter(name) - start:parameter(name), clipped:parameter(name) - start:parameter(name)
      squares = squares + (step * step):sum():item()
      assert.is_near(0, largest_difference(smaller * 4, step), 1e-12)
    end
    assert.is_near(report.grad_norm, math.sqrt(squares), 1e-9)
    local _, message = pcall(ms.trainer, { model = start, clip = ms.clip("ghost", {}), clip_global_norm = 1 })
    assert.matches("expected clip = none, got ghost", message)
  end)
end)
