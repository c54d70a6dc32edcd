--- What the ranks of checkpoint_spec.lua do. Run: moonshard run --nproc N checkpoint_child.lua MODE FOLDER …
-- A step takes the same six batches in a world of 1, 2 or 3 (grad_accum makes up for it), so that all of them train alike.
local ms = require "moonshard"
local ffi = require "ffi"
ffi.cdef [[
  struct ck_rlimit { unsigned long soft, hard; };
  int setrlimit(int resource, const struct ck_rlimit *limit);
  void *signal(int number, void *handler);
  int getpid(void);
  int setenv(const char *name, const char *value, int overwrite);
  int unsetenv(const char *name);
]]

local mode, folder = arg[1], arg[2]
local rank, world = ms.dist.rank(), ms.dist.world()

local kinds = {
  none = function() return nil end,
  ddp = function() return ms.ddp {} end,
  zero3 = function() return ms.fsdp { sharding = "zero3" } end,
  zero2 = function() return ms.fsdp { sharding = "zero2", wrap = "none" } end,
  zero2_replicated = function() return ms.fsdp { sharding = "zero2_replicated" } end,
  offload = function() return ms.fsdp { sharding = "zero3", wrap = "size", min_num_params = 9000, cpu_offload = true } end,
}
local order = { "none", "ddp", "zero3", "zero2", "zero2_replicated", "offload" }

--- Wrappers that a world of this size can have.
local function kinds_of(size)
  local list = {}
  for _, name in ipairs(order) do
    if name ~= "none" or size == 1 then list[#list + 1] = name end
  end
  return list
end

local models = {
  llama = function()
    return ms.model("llama3.2-tiny", { task = "lm", device = "cpu", dtype = "float64", hidden_dim = 24, intermediate_dim = 38,
      vocab_size = 29, head_dim = 6, seed = 3, frozen = "model.layers.0.mlp.*" })
  end,
  dit = function()  -- drops labels: another draw that depends on the step
    return ms.model("dit-tiny", { device = "cpu", seed = 3, label_dropout = 0.5 })
  end,
}

local function make(kind, model)
  model = models[model or "llama"]()
  return ms.trainer {
    model = model,
    clip = ms.clip("bookkeeping", { clipping = "adaptive", noise_multiplier = 0.5, quantile_noise = 3 }),
    optimizer = ms.optim.adamw { lr = 0.01 },
    data = ms.data.synthetic { batch_size = 1, seq_length = 5 },
    parallel = kinds[kind](),
    privacy = { secure = false },  -- what goes on exactly is compared
    grad_accum = 6 / world,
  }, model
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

--- Largest difference of a trainer's whole weights to those of a file.
local function difference(trainer, model, path)
  trainer:gather()
  local want, largest = ms.weights.open(path), 0
  ms.scope(function()
    for _, name in ipairs(want:names()) do
      if not name:find "^optimizer/" then
        local error = (model:parameter(name) - want:tensor(name)):abs():max():item()
        largest = error == error and math.max(largest, error) or math.huge
      end
    end
  end)
  want:close()
  return largest
end

local modes = {}

--- Two steps under every wrapper, a checkpoint of each; a world of one also makes the reference, three steps.
function modes.save_all()
  for _, kind in ipairs(kinds_of(world)) do
    local trainer = make(kind)
    trainer:step()
    trainer:step()
    trainer:save(folder .. "/" .. world .. "_" .. kind)
    if kind == "none" then
      trainer:step()
      trainer:save(folder .. "/reference")
    end
    trainer:close()
  end
end

--- From every checkpoint under every wrapper one step more; prints what is off.
function modes.resume_all()
  local wrong, count = {}, 0
  for size = 1, 3 do
    for _, saved in ipairs(kinds_of(size)) do
      for _, kind in ipairs(kinds_of(world)) do
        local trainer, model = make(kind)
        local name = ("%d %s to %d %s"):format(size, saved, world, kind)
        local step = trainer:resume(folder .. "/" .. size .. "_" .. saved)
        local report = trainer:step()
        local error = difference(trainer, model, folder .. "/reference/step_00000003/rank00000.safetensors")
        if step ~= 2 or report.step ~= 3 or report.privacy_steps ~= 3 or error >= 1e-10 then
          wrong[#wrong + 1] = ("%s: step %s, error %g"):format(name, tostring(step), error)
        end
        count = count + 1
        trainer:close()
      end
    end
  end
  write(folder .. "/result." .. world .. "." .. rank, count .. " " .. table.concat(wrong, "; "))
end

function modes.straight()
  local trainer = make(arg[3], arg[4])
  trainer:step()
  trainer:step()
  trainer:save(folder .. "/a")
  trainer:step()
  trainer:step()
  trainer:save(folder .. "/b")
end

function modes.again()
  local trainer = make(arg[3], arg[4])
  assert(trainer:resume(folder .. "/a") == 2)
  trainer:step()
  trainer:step()
  trainer:save(folder .. "/c")
end

--- The last rank's disk is full at its second save: every rank must hear of it, and go on.
function modes.full_disk()
  local trainer = make(arg[3])
  trainer:step()
  trainer:save(folder .. "/saved")
  trainer:step()
  local hit = arg[3] == "ddp" and 0 or world - 1
  if rank == hit then
    ffi.C.signal(25, ffi.cast("void *", 1))  -- SIGXFSZ is ignored: writing fails instead
    ffi.C.setrlimit(1, ffi.new("struct ck_rlimit", { 4096, 4096 }))  -- RLIMIT_FSIZE
  end
  local good, message = pcall(trainer.save, trainer, folder .. "/saved")
  local resumed = trainer:resume(folder .. "/saved")
  local report = trainer:step()
  local text = ("%s %d %d %s"):format(tostring(good), resumed, report.step, tostring(message))
  if rank ~= hit then write(folder .. "/result." .. rank, text) end
end

--- A resume that must fail: on every rank alike, and nothing changes.
function modes.refuse()
  local trainer, model = make "zero3"
  trainer:step()
  trainer:save(folder .. "/before")
  local good, message = pcall(trainer.resume, trainer, folder .. "/saved")
  local error = difference(trainer, model, folder .. "/whole/step_00000001/rank00000.safetensors")
  local report = trainer:step()
  local text = ("%s %g %d %d %s"):format(tostring(good), error, report.step, report.privacy_steps, tostring(message))
  write(folder .. "/result." .. rank, text)
end

--- The same checkpoint unharmed.
function modes.resume_saved()
  assert(make "zero3":resume(folder .. "/saved") == 4)
end

--- A trainer with a claim.
local function make_claiming(options)
  local text = folder .. "/text" .. rank
  os.execute("mkdir -p " .. text)
  write(text .. "/a.txt", ("one two three four "):rep(100))
  local model = ms.model("llama3-tiny", { device = "cpu", num_layers = 1, task = "lm", vocab_size = 300, seed = 1 })
  return ms.trainer { model = model, parallel = ms.fsdp(options or {}), optimizer = ms.optim.sgd { lr = 0.1 },
    clip = ms.clip("bookkeeping", { noise_multiplier = 1 }), privacy = { secure = true },
    data = ms.data.loader { sampler = "poisson", batch_size = 4, expected_batch_size = 8,
      dataset = ms.data.text { folder = text, max_length = 8, model = model, cache = "none" } } }
end

--- Saved under a key; resumed with it, without it, with another, and with it on one rank alone.
function modes.keys()
  local variable, lines = "MOONSHARD_CHECKPOINT_KEY_FILE", {}
  if rank == 0 then
    write(folder .. "/key", "a key of two ranks")
    write(folder .. "/other", "a key of somebody else")
  end
  local first = make_claiming()
  first:step()
  ffi.C.setenv(variable, folder .. "/key", 1)
  first:save(folder .. "/saved")
  for _, case in ipairs { "key", "none", "other", "one rank" } do
    if case == "none" or (case == "one rank" and rank == 1) then
      ffi.C.unsetenv(variable)
    else
      ffi.C.setenv(variable, folder .. "/" .. (case == "other" and "other" or "key"), 1)
    end
    local trainer = make_claiming()
    trainer:step()
    local good, message = pcall(trainer.resume, trainer, folder .. "/saved")
    local step, privacy = trainer:step().step, trainer:privacy()
    lines[#lines + 1] = ("%s: %d %s %s"):format(case, step, privacy.epsilon and "claim" or privacy.why_no_epsilon, good and "" or message)
  end
  write(folder .. "/result." .. rank, table.concat(lines, "\n") .. "\n")
end

--- A claim that is lost because ranks' sums are rounded, and a run that resumes it.
function modes.rounded()
  local first = make_claiming { reduce_dtype = "bfloat16" }
  first:step()
  first:save(folder .. "/saved")
  local second = make_claiming()
  second:resume(folder .. "/saved")
  second:step()
  write(folder .. "/result." .. rank, tostring(second:privacy().why_no_epsilon))
end

--- One step, saved whole: what refuse compares with.
function modes.whole()
  local trainer = make "none"
  trainer:step()
  trainer:save(folder .. "/whole")
end

--- Steps and saves until it is killed; rank 0 notes what was acknowledged.
function modes.forever()
  write(folder .. "/pid." .. rank, tostring(ffi.C.getpid()))
  local trainer = make(arg[3])
  trainer:resume(folder .. "/saved", { if_any = true })
  while true do
    local report = trainer:step()
    trainer:save(folder .. "/saved")
    if rank == 0 then write(folder .. "/acknowledged", tostring(report.step)) end
  end
end

function modes.look()
  local trainer, model = make(arg[3])
  local step = trainer:resume(folder .. "/saved", { if_any = true }) or 0
  local straight, other = make(arg[3])
  for _ = 1, step do straight:step() end
  trainer:gather()
  straight:gather()
  local largest = 0
  for _, name in ipairs(model.trainable) do
    largest = math.max(largest, (model:parameter(name) - other:parameter(name)):abs():max():item())
  end
  print(("%d %d %g"):format(step, trainer.privacy_steps, largest))
end

assert(modes[mode], mode)()
