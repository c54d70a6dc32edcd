--- Peaks of memory that plans predict for a CPU, against those of runs on this one.
local ms = require "moonshard"
local lists = require "moonshard.lists"

-- Plans were compared with runs on x86_64; another architecture's LibTorch may have other temporaries.
local elsewhere = jit.arch == "x64" and 0 or 0.06

local function planned(options) return ms.plan(lists.merged(options, { gpu = "cpu", search = false })).best.peak_memory_bytes end

local function measured(options)
  return ms.run(lists.merged(options, { device = "cpu", iters = 1, warmup = 1 })).metrics.peak_memory_bytes
end

local function expect_as_measured(base, cases, within)
  for _, more in ipairs(cases) do
    local options = lists.merged(base, more)
    local words = {}
    for name, value in pairs(options) do words[#words + 1] = name .. " " .. tostring(value) end
    table.sort(words)
    local ratio = planned(options) / measured(options)
    assert.is_true(math.abs(ratio - 1) < (within or 0.04) + elsewhere, ("%s: %.3f"):format(table.concat(words, ", "), ratio))
  end
end

describe("a plan of a CPU's memory", function()
  it("has the gradients of a DiT whose last layer stays at zero once", function()
    local dit = { model = "dit-xl-tiny", mode = "materialize", hidden_dim = 256, num_heads = 4, intermediate_dim = 1024, batch_size = 8 }
    expect_as_measured(dit, { {}, { trained = "blocks.*" }, { frozen = "*adaLN*" } }, 0.06)
  end)

  it("has the gradient of scores once, in every pass", function()
    local lm = { model = "llama3-tiny", task = "lm", hidden_dim = 128, intermediate_dim = 256, vocab_size = 8000, batch_size = 2 }
    expect_as_measured(lm, { { mode = "none" }, { mode = "ghost" }, { mode = "ghost", tie_embeddings = "yes" },
      { mode = "flash", frozen = "lm_head*" }, { mode = "bookkeeping" }, { mode = "ghost", model = "gemma2-tiny" },
      { mode = "ghost", param_dtype = "bfloat16", parallel = "fsdp" } })
  end)

  it("leaves out what layers that are not trained do not keep", function()
    local options = { model = "llama3-tiny", task = "classify", hidden_dim = 128, intermediate_dim = 512, num_layers = 4, batch_size = 8 }
    local parts = { { lora_rank = 8 }, { lora_rank = 8, lora_targets = "down_proj" }, { lora_rank = 8, lora_targets = "q_proj,v_proj" },
      { trained = "*norm*" }, { frozen = "*mlp*" }, { trained = "*self_attn*" } }
    for _, mode in ipairs { "none", "ghost", "bookkeeping" } do expect_as_measured(lists.merged(options, { mode = mode }), parts) end
    expect_as_measured(lists.merged(options, { mode = "bookkeeping", lora_rank = 8 }),
      { { model = "gemma3-tiny", lora_targets = "down_proj" }, { checkpointing = "block", lora_targets = "q_proj,v_proj" } })
    local dit = { model = "dit-xl-tiny", mode = "none", hidden_dim = 256, num_heads = 4, intermediate_dim = 1024, num_layers = 4,
      batch_size = 8 }
    expect_as_measured(dit, { { frozen = "*mlp*" }, { lora_rank = 8, lora_targets = "fc2" }, { lora_rank = 8, lora_targets = "attn.qkv" } })
  end)

  it("has the stream's gradients while the norm of a classifier's last block runs backward", function()
    local narrow = { model = "qwen2.5-tiny", task = "classify", hidden_dim = 256, intermediate_dim = 128, num_layers = 1, batch_size = 16,
      seq_length = 200 }
    expect_as_measured(narrow, { { mode = "none" }, { mode = "bookkeeping" }, { mode = "flash", num_layers = 2 } }, 0.05)
    expect_as_measured(narrow, { { mode = "flash" }, { mode = "none", trained = "score*" } }, 0.1)
  end)

  it("has what norms, sums and the loss of many vectors need beside them", function()
    expect_as_measured({ model = "linear-tiny", hidden_dim = 256, batch_size = 4096 },
      { { mode = "none" }, { mode = "ghost" }, { mode = "flash" }, { mode = "bookkeeping" } })
    expect_as_measured({ model = "linear-tiny", hidden_dim = 256, batch_size = 64 }, { { mode = "materialize" } })
  end)

  it("has states of 16 bits wide while a private step updates a unit beside what is still held", function()
    local options = { model = "llama3-tiny", task = "classify", hidden_dim = 512, num_layers = 3, batch_size = 4, seq_length = 32,
      optimizer = "adamw", state_dtype = "bfloat16" }
    expect_as_measured(options, { { mode = "ghost", parallel = "fsdp" }, { mode = "bookkeeping", parallel = "fsdp" } })
    expect_as_measured(options, { { mode = "ghost", parallel = "none" }, { mode = "bookkeeping", parallel = "none" } })
    expect_as_measured({ model = "linear-tiny", hidden_dim = 1024, batch_size = 16, optimizer = "adam", state_dtype = "bfloat16" },
      { { mode = "ghost" }, { mode = "bookkeeping" } })
  end)
end)
