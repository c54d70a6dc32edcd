--- One short example of each function and method, by name. tests/scripts/reference_spec.lua runs all of them on a CPU, in a folder that
-- `prelude` is said of, and compares what they print with the text behind "-->"; "…" stands for anything.
local lists = require "moonshard.lists"

local M = {}

--- What the examples share.
M.prelude = [[
local ms = require "moonshard"
local model = ms.model("llama3-tiny", { device = "cpu", hidden_dim = 16, num_layers = 1, num_heads = 2, num_kv_heads = 1, head_dim = 8 })
local data = ms.data.synthetic { model = model, batch_size = 2, seq_length = 8 }
local trainer = ms.trainer { model = model, clip = ms.clip "ghost", data = data }
local t = ms.tensor { { 1, 2 }, { 3, 4 } }
local runs = ms.sweep { model = "linear-tiny", hidden_dim = 8, device = "cpu", threads = 1, out = "results",
  grid = { mode = { "none", "ghost" }, batch_size = { 8, 16 } }, baseline = "none" }:run()]]

local tensors = {
  ["ms.tensor"] = [[print(ms.tensor({ { 1, 2 }, { 3, 4 } }).shape[2])  --> 2]],
  ["ms.zeros"] = [[print(ms.zeros({ 2, 3 }).numel)  --> 6]],
  ["ms.ones"] = [[print(ms.ones({ 2, 3 }, { dtype = "float64" }):sum():item())  --> 6]],
  ["ms.arange"] = [[print(ms.arange(4):tolist()[4])  --> 3]],
  ["ms.randn"] = [[print(ms.randn({ 2 }, 1):sub(ms.randn({ 2 }, 1)):norm():item())  --> 0]],
  ["ms.scope"] = [[print(ms.scope(function() return (t + 1):sum() end):item())  --> 14]],
  ["Tensor:add"] = [[print(t:add(1):sum():item(), (t + t):sum():item())  --> 14	20]],
  ["Tensor:sub"] = [[print(t:sub(1):sum():item(), (t - t):sum():item())  --> 6	0]],
  ["Tensor:mul"] = [[print(t:mul(t):sum():item(), (2 * t):sum():item())  --> 30	20]],
  ["Tensor:div"] = [[print(t:div(2):sum():item(), (t / t):sum():item())  --> 5	4]],
  ["Tensor:matmul"] = [[print(t:matmul(t):tolist()[1][1])  --> 7]],
  ["Tensor:neg"] = [[print(t:neg():sum():item(), (-t):max():item())  --> -10	-1]],
  ["Tensor:abs"] = [[print((-t):abs():sum():item())  --> 10]],
  ["Tensor:sqrt"] = [[print(ms.tensor({ 9 }):sqrt():item())  --> 3]],
  ["Tensor:exp"] = [[print(ms.tensor({ 0 }):exp():item())  --> 1]],
  ["Tensor:log"] = [[print(ms.tensor({ 1 }):log():item())  --> 0]],
  ["Tensor:clone"] = [[
local copy = t:clone()
copy:free()
print(t.freed)  --> false]],
  ["Tensor:sum"] = [[print(t:sum():item(), t:sum(1):tolist()[2])  --> 10	6]],
  ["Tensor:mean"] = [[print(t:mean():item(), t:mean(2):tolist()[1])  --> 2.5	1.5]],
  ["Tensor:max"] = [[print(t:max():item(), t:max(1):tolist()[1])  --> 4	3]],
  ["Tensor:min"] = [[print(t:min():item(), t:min(2):tolist()[2])  --> 1	3]],
  ["Tensor:norm"] = [[print(ms.tensor({ 3, 4 }):norm():item())  --> 5]],
  ["Tensor:item"] = [[print(t:sum():item())  --> 10]],
  ["Tensor:tolist"] = [[print(t:tolist()[2][1])  --> 3]],
  ["Tensor:reshape"] = [[print(t:reshape({ 4 }):tolist()[4])  --> 4]],
  ["Tensor:transpose"] = [[print(t:transpose():tolist()[1][2])  --> 3]],
  ["Tensor:select"] = [[print(t:select(1, 2):tolist()[1])  --> 3]],
  ["Tensor:to"] = [[print(t:to("bfloat16").bytes)  --> 8]],
  ["Tensor:free"] = [[
local large = ms.zeros { 1024 }
large:free()
print(large.freed)  --> true]],
}

local training = {
  ["ms.model"] = [[print(ms.model("llama3-tiny", { task = "lm", num_layers = 1, device = "cpu" }))  --> Model llama3-tiny (lm, …]],
  ["ms.models"] = [[print(ms.models()[1].name)  --> llama3.1-8b]],
  ["Model:parameter"] = [[print(model:parameter("model.norm.weight").shape[1])  --> 16]],
  ["Model:losses"] = [[print(model:losses(data:next()).shape[1])  --> 2]],
  ["Model:forward"] = [[print(model:forward(data:next()).shape[1])  --> 2]],
  ["Model:save_adapter"] = [[
local folder = os.tmpname() .. "_adapter"
local adapted = ms.model("llama3-tiny", { lora = { rank = 2 } })
adapted:save_adapter(folder)
print(ms.model("llama3-tiny", { adapter = folder }).options.lora_rank)  --> 2]],
  ["Model:merged"] = [[
local adapted = ms.model("llama3-tiny", { lora = { rank = 2 } })
print(#adapted.parameters, #adapted:merged().parameters)  --> 49	21]],
  ["Model:generate"] = [[
local writer = ms.model("llama3-tiny", { task = "lm", device = "cpu" })
local made = writer:generate { prompt = { "to be", "or not" }, tokenizer = "bytes", stop = false, max_new_tokens = 4, temperature = 0.8 }
print(#made.texts, #made.ids[2], made.ended[1])  --> 2	4	length]],
  ["Trainer:generate"] = [[
local writing = ms.trainer { model = ms.model("llama3-tiny", { task = "lm", device = "cpu" }) }
print(writing:generate({ prompt = { 1, 2, 3 }, max_new_tokens = 5, temperature = 0 }).new_tokens)  --> 5]],
  ["Model:freeze"] = [[
local own = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" })
print(own:freeze("layers.0.*"), #own.parameters - #own.trainable)  --> 2	2]],
  ["Model:save"] = [[print(model:save("saved")[1])  --> config.json]],
  ["ms.clip"] = [[print(ms.clip("flash", { max_grad_norm = 0.5, clipping = "per_layer" }).max_grad_norm)  --> 0.5
print(ms.clip("auto", { groups = { { match = "*.bias", max_grad_norm = 0.5 } } }).clip_groups)  --> *.bias = 0.5]],
  ["ms.optim.sgd"] = [[print(ms.optim.sgd { lr = 0.1, momentum = 0.9 }.momentum)  --> 0.9]],
  ["ms.optim.adam"] = [[print(ms.optim.adam { lr = 1e-3 }.optimizer)  --> adam]],
  ["ms.optim.adamw"] = [[print(ms.optim.adamw { lr = 1e-3, weight_decay = 0.1 }.optimizer)  --> adamw]],
  ["ms.ddp"] = [[print(ms.ddp { bucket_mb = 10 }.parallel)  --> ddp]],
  ["ms.fsdp"] = [[print(ms.fsdp { sharding = "zero2", cpu_offload = true }.parallel)  --> fsdp]],
  ["ms.trainer"] = [[
local clip, optimizer = ms.clip("ghost", { max_grad_norm = 1 }), ms.optim.adamw { lr = 1e-3 }
local private = ms.trainer { model = model, data = data, clip = clip, optimizer = optimizer }
print(private.engine, private.private)  --> ghost	true]],
  ["Trainer:step"] = [[
local report = trainer:step()
print(report.batch_size, #report.norms)  --> 2	2]],
  ["Trainer:privacy"] = [[print(trainer:privacy().why_no_epsilon ~= nil)  --> true]],
  ["Trainer:gather"] = [[
trainer:gather()
print(model:parameter("model.norm.weight").numel)  --> 16]],
  ["Trainer:trace"] = [[
trainer:trace("step.json.gz", 1)
trainer:step()  -- step.json.gz opens in Perfetto]],
  ["Trainer:save"] = [[print(trainer:save("checkpoints", { keep = 3 }) ~= nil)  --> true]],
  ["Trainer:finish_save"] = [[
trainer:save("checkpoints", { wait = false })
trainer:step()
print(trainer:finish_save().error)  --> nil]],
  ["Trainer:durable"] = [[
local run = ms.trainer { model = ms.model("llama3-tiny"), data = ms.data.synthetic { batch_size = 1, seq_length = 4 } }
run:durable("durable", { every = 2 })
while run.steps < 3 do run:step() end
print(run.steps)  --> 3]],
  ["Trainer:resume"] = [[
trainer:save("checkpoints")
print(trainer:resume("checkpoints") == trainer.privacy_steps)  --> true]],
  ["Trainer:close"] = [[
local short = ms.trainer { model = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" }) }
short:close()
print(short)  --> Trainer (closed)]],
  ["Trainer:fit"] = [[
local learner = ms.trainer { model = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" }) }
local fit = learner:fit { steps = 3, log = false, progress = false }
print(fit.steps, fit.stopped)  --> 3	done]],
  ["ms.evaluate"] = [[
local linear = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" })
local batches = { ms.data.synthetic({ model = linear, batch_size = 4 }):next() }
print(ms.evaluate(linear, batches).samples)  --> 4]],
  ["ms.profile"] = [[print(ms.profile(trainer, { iters = 2, warmup = 1 }).time.count)  --> 2]],
}

local data = {
  ["ms.data.synthetic"] = [[print(ms.data.synthetic { model = model, batch_size = 3, seq_length = 4 }:next().input_ids.shape[1])  --> 3]],
  ["ms.data.text"] = [[
local texts = ms.data.text { folder = "corpus", max_length = 8, tokenizer = "bytes" }
print(texts)  --> Dataset of … examples]],
  ["ms.data.classification"] = [[
local reviews = ms.data.classification { file = "reviews.jsonl", max_length = 16, part = "all" }
print(reviews:size())  --> 4]],
  ["ms.data.loader"] = [[
local texts = ms.data.text { folder = "corpus", max_length = 8 }
print(ms.data.loader { dataset = texts, sampler = "poisson", batch_size = 2 })  --> Data (poisson of … examples)]],
  ["Data:next"] = [[print(data:next().input_ids.shape[2])  --> 8]],
  ["Dataset:size"] = [[print(ms.data.text { folder = "corpus", max_length = 8 }:size() > 0)  --> true]],
  ["Dataset:facts"] = [[print(ms.data.text { folder = "corpus", max_length = 8 }:facts().documents)  --> 1]],
  ["Dataset:batch"] = [[print(ms.data.text { folder = "corpus", max_length = 8 }:batch({ 1, 2 }).input_ids.shape[1])  --> 2]],
  ["ms.tokenizer"] = [[print(ms.tokenizer "bytes")  --> Tokenizer bytes (… ids)]],
  ["Tokenizer:encode"] = [[print(ms.tokenizer("bytes"):encode("A", { special_tokens = false })[1])  --> 65]],
  ["Tokenizer:decode"] = [[print(ms.tokenizer("bytes"):decode { 72, 105 })  --> Hi]],
  ["Tokenizer:id"] = [[print(ms.tokenizer("bytes"):id("A"))  --> 65]],
  ["Tokenizer:end_of_text"] = [[print(ms.tokenizer("bytes"):end_of_text())  --> 0]],
  ["Tokenizer:vocab_size"] = [[print(ms.tokenizer("bytes"):vocab_size() >= 256)  --> true]],
  ["ms.weights.save"] = [[
ms.weights.save("t.safetensors", { t = t }, { author = "me" })
print(ms.weights.open("t.safetensors").metadata.author)  --> me]],
  ["ms.weights.open"] = [[
model:save("saved")
print(ms.weights.open("saved").count == #model.parameters)  --> true]],
  ["ms.weights.config"] = [[
model:save("saved")
print(ms.weights.config("saved").hidden_dim)  --> 16]],
  ["ms.weights.load"] = [[
model:save("saved")
print(ms.weights.load("saved", { device = "cpu" }).num_parameters == model.num_parameters)  --> true]],
  ["Weights:names"] = [[
ms.weights.save("t.safetensors", { b = t, a = t })
print(ms.weights.open("t.safetensors"):names()[1])  --> a]],
  ["Weights:tensor"] = [[
ms.weights.save("t.safetensors", { t = t })
print(ms.weights.open("t.safetensors"):tensor("t"):sum():item())  --> 10]],
  ["Weights:close"] = [[
ms.weights.save("t.safetensors", { t = t })
local file = ms.weights.open("t.safetensors")
file:close()
print(file)  --> Weights (closed)]],
}

local privacy = {
  ["ms.engines"] = [[print(ms.engines()[3].name, ms.engines()[3].private)  --> ghost	true]],
  ["ms.rules"] = [[print(#ms.rules() > 5)  --> true]],
  ["ms.register_engine"] = [[
local function norms(_, a, g) return a:norm(2):norm(2):mul(g:norm(2):norm(2)) end  -- an upper bound, for the sake of shortness
ms.register_engine("mine", { norms = norms, doc = "an upper bound" })
print(ms.clip("mine").mode)  --> mine
ms.register_engine("mine", false)]],
  ["ms.register_rule"] = [[
ms.register_rule("my_linear", { per_sample = function(_, a, g) return g:transpose():matmul(a) end })
ms.register_rule("my_linear", false)]],
  ["ms.verify"] = [[
local found = ms.verify { model = "linear-tiny", engine = "ghost", options = "default", dtype = "float64", device = "cpu" }
print(found.failed)  --> 0]],
  ["ms.audit"] = [[
local found = ms.audit { engine = "ghost", seeds = 1, canaries = 20, trials = 4, secure = false, seed = 1, device = "cpu" }
print(#found.audits)  --> 1]],
  ["ms.privacy.epsilon"] = [[
local spent = ms.privacy.epsilon { q = 0.01, sigma = 1, steps = 1000, delta = 1e-5 }
print(("%.1f"):format(spent.epsilon))  --> 1.8]],
  ["ms.privacy.calibrate"] = [[
local found = ms.privacy.calibrate { q = 0.01, steps = 1000, delta = 1e-5, target_epsilon = 2 }
print(("%.1f"):format(found.sigma))  --> 1.0]],
}

local experiments = {
  ["ms.run"] = [[
local result = ms.run { model = "linear-tiny", hidden_dim = 8, mode = "ghost", device = "cpu", iters = 2 }
print(result.status, result.options.mode)  --> ok	ghost]],
  ["ms.last_run"] = [[print((pcall(ms.last_run)))  --> false]],
  ["ms.resolve"] = [[print(ms.resolve({ model = "llama3-tiny", device = "cpu" }).options.seq_length)  --> 128]],
  ["ms.options"] = [[print(ms.options()[1].name, ms.options()[1].default)  --> model	llama3-tiny]],
  ["ms.option_names"] = [[print(ms.option_names()[1])  --> model]],
  ["ms.options_of"] = [[print(ms.options_of(ms.optim.adam)[1].name)  --> lr]],
  ["ms.values_of"] = [[print(ms.values_of("tokenizer")[1])  --> bytes]],
  ["ms.search"] = [[print(ms.search("lr_schedule")[1].name)  --> option lr_schedule of ms.optim.adam, …]],
  ["ms.sweep"] = [[
local sweep = ms.sweep { model = "llama3-tiny", device = "cpu", grid = { mode = { "none", "ghost", "flash" }, seq_length = { 64, 128 } } }
print(sweep)  --> Sweep : 6 points over mode x seq_length]],
  ["Sweep:run"] = [[
local sweep = ms.sweep { model = "linear-tiny", hidden_dim = 8, device = "cpu", threads = 1, grid = { mode = { "none" } } }
print(#sweep:run { timeout = 60 })  --> 1]],
  ["ms.find_max_batch"] = [[
local found = ms.find_max_batch { model = "linear-tiny", hidden_dim = 8, device = "cpu", high = 2, verify = false, quiet = true }
print(found.batch_size)  --> 2]],
  ["ms.plan"] = [[
local plan = ms.plan { model = "llama3.1-8b", mode = "bookkeeping", gpu = "h200", gpus = 8, global_batch = 64, seq_length = 1024 }
print(plan.best.options.parallel)  --> fsdp]],
  ["Plan:explain"] = [[
local plan = ms.plan { model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }
print(plan:explain():match "^memory of a rank")  --> memory of a rank]],
  ["Plan:script"] = [[
local plan = ms.plan { model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }
print(plan:script():match "ms%.run")  --> ms.run]],
  ["Plan:sweep_script"] = [[
local plan = ms.plan { model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }
print(plan:sweep_script():match "ms%.sweep")  --> ms.sweep]],
  ["Plan:trace"] = [[
ms.plan({ model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }):trace(os.tmpname())]],
  ["Plan:simulate"] = [[
local plan = ms.plan { model = "llama3-tiny", gpu = "h200", batch_size = 2, seq_length = 16, search = false }
print(plan:simulate({ steps = 2 }).points[1].options.world:match "^modelled")  --> modelled]],
  ["Plan:row"] = [[
local plan = ms.plan { model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }
print(plan:row(1).fits)  --> true]],
  ["ms.trace.path"] = [[
local file = os.tmpname()
ms.plan({ model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }):trace(file)
print(ms.trace.path(file).kinds[1].name)  --> kernel]],
  ["ms.trace.what_if"] = [[
local file = os.tmpname()
ms.plan({ model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }):trace(file)
local forecast = ms.trace.what_if(file, { phases = { backward = 0.5 } })
print(forecast.predicted_ms < forecast.step_ms)  --> true]],
  ["ms.trace.diff"] = [[
local file = os.tmpname()
ms.plan({ model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }):trace(file)
print(ms.trace.diff(file, file).phases[1].change_ms)  --> 0]],
  ["ms.rank_memory"] = [[print(ms.rank_memory({ ranks = 8, model = "llama3.2-1b", parallel = "fsdp" }).parameter_bytes > 0)  --> true]],
  ["ms.load"] = [[
print(#ms.load(runs.path))  --> 4
print(#ms.load { runs.path, runs.path })  --> 8]],
  ["ms.fields"] = [[print(ms.fields("median_time_ms")[1].unit)  --> ms]],
  ["ms.log.run"] = [[
local run = ms.log.run { name = "mine", options = { lr = 0.1 } }
for step = 1, 3 do run:log(step, { loss = 1 / step }) end
print(ms.load(run:finish { score = 0.9 }):best("score").status)  --> ok]],
  ["RunLog:log"] = [[
local run = ms.log.run()
run:log(1, { loss = 2.5 })
print(#run.steps)  --> 1]],
  ["RunLog:finish"] = [[print(ms.load(ms.log.run():finish { score = 1 })[1].status)  --> ok]],
  ["RunLog:fail"] = [[print(ms.load(ms.log.run():fail("diverged"))[1].error)  --> diverged]],
  ["RunLog:point"] = [[
local first = ms.log.run { options = { lr = 0.1 } }
first:finish { score = 1 }
print(#ms.load(first:point({ lr = 0.2 }):finish { score = 2 }))  --> 2]],
  ["ms.plot"] = [[
local rows = { { step = 1, loss = 3.1, mode = "none" }, { step = 2, loss = 2.4, mode = "none" }, { step = 1, loss = 3.3, mode = "ghost" } }
print(ms.plot { rows, x = "step", y = "loss", group = "mode", title = "Loss", out = { "loss.pdf", "loss.svg" } })  --> loss.pdf
--> loss.svg]],
  ["ms.report"] = [[print(ms.report(runs, { output = "report.html" }))  --> report.html]],
  ["ms.compare"] = [[print(#ms.compare({ runs.path }, { metrics = { "median_time_ms" } }).items)  --> 4]],
  ["ms.snapshot"] = [[print(ms.snapshot("snapshot.pickle").peak_bytes > 0)  --> true]],
}

local results = {
  ["Runs:count"] = [[print(runs:count "ok")  --> 4]],
  ["Runs:select"] = [[print(#runs:select(function(point) return point.options.mode == "ghost" end))  --> 2]],
  ["Runs:best"] = [[
print(runs:best("peak_memory_mb").options.batch_size)  --> 8
print(runs:best({ "peak_memory_mb", most = true }).options.batch_size)  --> 16]],
  ["Runs:rows"] = [[
local columns, rows = runs:rows()
print(columns[1], #rows)  --> mode	4]],
  ["Runs:table"] = [[print(runs:table():match("median ms"))  --> median ms]],
  ["Runs:overhead"] = [[print(runs:overhead { baseline = "none" }.columns[4])  --> time x]],
  ["Runs:labels"] = [[print(runs:labels())  --> nil]],
  ["Runs:summary"] = [[print((runs:summary():match("4 points, 4 ok")))  --> 4 points, 4 ok]],
  ["Runs:plot"] = [[print(runs:plot("time_comparison")[1]:match("time_comparison"))  --> time_comparison]],
  ["Runs:tabulate"] = [[print(#runs:tabulate("phases").rows > 0)  --> true]],
  ["Figure:save"] = [[
local figure = ms.plot { runs, x = "batch_size", y = "median_time_ms", group = "mode", out = "a.svg" }
print(#figure:save("a.pdf"))  --> 2]],
  ["Table:to"] = [[print(runs:overhead():to("csv"):match("^[^,]+"))  --> mode]],
  ["ms.analyze.overhead"] = [[print(#ms.analyze.overhead(runs, { baseline = "none" }).rows > 0)  --> true]],
  ["ms.analyze.memory"] = [[print(#ms.analyze.memory(runs).rows > 0)  --> true]],
  ["ms.analyze.stages"] = [[print(#ms.analyze.stages(runs).rows > 0)  --> true]],
  ["ms.analyze.phases"] = [[print(#ms.analyze.phases(runs).rows > 0)  --> true]],
  ["ms.analyze.scaling"] = [[print(ms.analyze.scaling(runs, { axis = "batch_size" }).axis)  --> batch_size]],
  ["ms.analyze.fit"] = [[print(("%.1f"):format(ms.analyze.fit({ 1, 2, 4 }, { 2, 4, 8 }).exponent))  --> 1.0]],
  ["ms.analyze.bottleneck"] = [[print(ms.analyze.bottleneck(runs).findings ~= nil)  --> true]],
  ["ms.analyze.tradeoff"] = [[print(#ms.analyze.tradeoff(runs).rows)  --> 4]],
}

local other = {
  ["ms.dist.rank"] = [[print(ms.dist.rank())  --> 0]],
  ["ms.dist.local_rank"] = [[print(ms.dist.local_rank())  --> 0]],
  ["ms.dist.world"] = [[print(ms.dist.world())  --> 1]],
  ["ms.dist.barrier"] = [[ms.dist.barrier()]],
  ["ms.dist.all_reduce"] = [[print(ms.dist.all_reduce(3), ms.dist.all_reduce({ 1, 2 }, "max")[2])  --> 3	2]],
  ["ms.dist.all_gather"] = [[print(ms.dist.all_gather(ms.dist.rank())[1])  --> 0]],
  ["ms.dist.broadcast"] = [[print(ms.dist.broadcast(7, 0))  --> 7]],
  ["ms.memory"] = [[print(ms.memory().cpu_allocated_bytes > 0)  --> true]],
  ["ms.machine"] = [[print(ms.machine().moonshard == ms.version)  --> true]],
  ["ms.gpus"] = [[print(ms.gpus().gpus ~= nil)  --> true]],
  ["ms.doc_of"] = [[print(ms.doc_of(ms.zeros).name)  --> ms.zeros]],
  ["ms.document"] = [[
local function double(x) return 2 * x end
ms.document(double, "double", "double(x) -> number", "Twice a number.")
print(ms.doc_of(double).signature)  --> double(x) -> number]],
}

return lists.merged(M, tensors, training, data, privacy, experiments, results, other)
