--- What the ranks of durable_spec.lua do. Run: moonshard run … durable_child.lua FOLDER STEPS EVERY [secret]
local ms = require "moonshard"
local ffi = require "ffi"
ffi.cdef "int getpid(void); int usleep(unsigned microseconds);"

local folder, steps, every, is_secret = arg[1], tonumber(arg[2]), tonumber(arg[3]), arg[4] == "secret"
local rank, world = ms.dist.rank(), ms.dist.world()

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

--- The step that it may not pass yet: who kills it may be slower than it.
local function allowed()
  local file = io.open(folder .. "/allowed")
  local text = file and file:read "*a"
  if file then file:close() end
  return tonumber(text or "") or (file and 0 or math.huge)
end

local model = ms.model("llama3-tiny", { device = "cpu", num_layers = 1, task = "lm", vocab_size = 300, seed = 1 })
local data = ms.data.synthetic { batch_size = 1, seq_length = 5 }
if is_secret then
  if rank == 0 then
    os.execute("mkdir -p " .. folder .. "/text")
    write(folder .. "/text/a.txt", ("one two three four "):rep(100))
  end
  ms.dist.barrier()
  data = ms.data.loader { sampler = "poisson", batch_size = 4, expected_batch_size = 4 * world,
    dataset = ms.data.text { folder = folder .. "/text", max_length = 8, model = model, cache = "none" } }
end
local trainer = ms.trainer { model = model, data = data, parallel = ms.fsdp {}, optimizer = ms.optim.adamw { lr = 0.01 },
  clip = ms.clip("bookkeeping", { noise_multiplier = 1 }), privacy = { secure = is_secret } }
local began = trainer:durable(folder .. "/saved", { every = every }) or 0
write(folder .. "/pid." .. rank, tostring(ffi.C.getpid()))
if rank == 0 then
  local lives = assert(io.open(folder .. "/lives", "a"))
  lives:write(began, " ", trainer.steps, "\n")
  lives:close()
end
while trainer.steps < steps do
  while rank == 0 and trainer.steps >= allowed() do ffi.C.usleep(2000) end
  local report = trainer:step()
  if rank == 0 then write(folder .. "/step", tostring(report.step)) end
end
trainer:save(folder .. "/end")
if rank == 0 then
  local privacy = trainer:privacy()
  write(folder .. "/result", ("%d %d %s"):format(trainer.steps, trainer.privacy_steps, tostring(privacy.epsilon)))
end
