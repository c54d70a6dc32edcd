--- The Lua half of the module: fills the native table with sweeps, results, profiles and plots.
-- Loaded by luaopen_moonshard; scripts write `local ms = require "moonshard"`.
return function(ms)
  local analyze = require "moonshard.analyze"
  ms.analyze, ms.compare = analyze, analyze.compare
  ms.sweep = require("moonshard.sweep").new
  ms.find_max_batch = require "moonshard.find_max_batch"
  ms.plan = require("moonshard.plan").plan
  ms.load = require("moonshard.runs").load
  ms.profile = require("moonshard.profile").profile
  ms.trace = require "moonshard.trace"
  ms.evaluate = require("moonshard.evaluate").evaluate
  local training = require("moonshard.native").training
  training.methods.fit = require("moonshard.fit").fit
  local generate = require("moonshard.generate").generate
  local model_methods = require("moonshard.native").model_methods
  model_methods.generate = generate
  training.methods.generate = function(...) return generate(...) end
  ms.plot = require("moonshard.plot_figure").plot
  ms.report = require("moonshard.report").report
  ms.log = { run = require("moonshard.run_log").run }
  ms.fields = require("moonshard.record_fields").list
  ms.snapshot = require("moonshard.snapshot.timeline").load

  ms.document(ms.sweep, "ms.sweep", "ms.sweep { name, grid = { option = { values } }, zip, when, each, run, expect, … } -> Sweep",
    "A grid of experiments, or of points of your own (run), each in a process of its own. sweep:run { resume, retry, timeout, … } "
    .. "returns the results; every other key is an experiment option (ms.options()).")
  ms.document(ms.find_max_batch, "ms.find_max_batch",
    "ms.find_max_batch { low, high, verify, timeout, … } -> { batch_size, failed_at, tries }",
    "The largest batch_size that fits, by trying, each try in a process of its own. Other keys are experiment options.")
  ms.document(ms.plan, "ms.plan", "ms.plan { model, gpu, gpus, nodes, global_batch, examples, price_per_gpu_hour, … } -> Plan",
    "Memory by owner, time by phase, GPU hours, price and epsilon of training on a cluster, before anything runs, and the fastest "
    .. "configurations that fit. Other keys are experiment options: what is given stays, what is not is searched. print shows a table.")
  ms.document(ms.load, "ms.load", "ms.load(folder or folders) -> Runs",
    "The results in a run folder: runs:overhead{}, runs:plot(name), runs:table(). A list of folders: all their points, with the axis "
    .. "run.")
  ms.document(ms.profile, "ms.profile", "ms.profile(trainer, { iters, warmup }) -> Profile",
    "Times a trainer's steps: median, IQR and share of each phase, memory, loss. print it.")
  ms.document(ms.trace, "ms.trace", "ms.trace", "What Chrome traces say, our own and PyTorch's: ms.trace.path, what_if, diff.")
  ms.document(ms.trace.path, "ms.trace.path", "ms.trace.path(path[, { step, rank, segments }]) -> TracePath",
    "The critical path of a traced step: what it waited for, by kind, phase, layer and kernel. path: a trace, the folder of a point, or of "
    .. "a run with one. print shows tables.")
  ms.document(ms.trace.what_if, "ms.trace.what_if", "ms.trace.what_if(path, { norms, plain, link, remove, names, … }) -> TraceForecast",
    "What a traced step would take if some of it were faster or not there, from the graph of what waited for what. print shows it.")
  ms.document(ms.trace.diff, "ms.trace.diff", "ms.trace.diff(before, after[, { rank }]) -> TraceDiff",
    "What differs between two traces by phase, layer and kernel, largest change first; figures are of one step. print shows tables.")
  ms.document(ms.evaluate, "ms.evaluate",
    "ms.evaluate(model or trainer, dataset[, { batch_size, public, noise_multiplier, … }]) -> Evaluation",
    "Loss, perplexity, accuracy and F1 of a whole dataset, by class, with 95 % intervals. Of a trainer all ranks together, also in parts; "
    .. "noise_multiplier noises the figures and charges them to its account. print shows a table.")
  ms.document(training.methods.fit, "Trainer:fit",
    "Trainer:fit { epochs, steps, evaluate, evaluate_every, patience, best, on_step, … } -> Fit",
    "Trains until a step with a progress bar, evaluates, stops early, keeps the best checkpoint, and writes the curve into a run folder.")
  ms.document(model_methods.generate, "Model:generate",
    "Model:generate { prompt, max_new_tokens, temperature, top_p, top_k, seed, stop, tokenizer, on_token, … } -> Generation",
    "What the model puts behind a prompt, or behind each of a list: text where there is a tokenizer, and ids. At the prompt of the REPL "
    .. "the text of a single one is shown as it comes. print shows the texts.")
  ms.document(training.methods.generate, "Trainer:generate",
    "Trainer:generate { prompt, max_new_tokens, … } -> Generation",
    "The same from the trainer's model, whose parameters may be in parts: all ranks together share the prompts, and all get all texts.")
  ms.document(ms.plot, "ms.plot", "ms.plot { data, x, y, group, kind, error, log, title, out, … } -> Figure",
    "A figure of your own as PNG, SVG or PDF. data: a list of rows, a table of columns, results (ms.load; x = \"step\" takes their steps) "
    .. "or a Table of an analysis.")
  ms.document(ms.report, "ms.report", "ms.report(folder, { output }) -> path",
    "One self-contained page of a run, report.html: tables, verdicts, figures, failures, environment, commands.")
  ms.document(ms.log, "ms.log", "ms.log", "Run folders that any script writes: ms.log.run.")
  ms.document(ms.log.run, "ms.log.run", "ms.log.run { name, out, options, tags, note } -> RunLog",
    "A run folder with a point of this script, without a sweep: run:log(step, { loss = … }), then run:finish { score = … } or "
    .. "run:fail(reason). ms.load, tables, plots and the viewer read it as any other; an interrupted one keeps its steps.")
  ms.document(ms.fields, "ms.fields", "ms.fields([text]) -> list of { path, key, unit, doc }",
    "What each field of a result.json means; with a text, those whose path contains it. print shows a table.")
  ms.document(ms.snapshot, "ms.snapshot", "ms.snapshot(file) -> table",
    "Memory over time of a PyTorch memory snapshot (.pickle), whoever wrote it: ms, total, places, order, peak_bytes.")
  analyze.document(ms.document)
  analyze.document = nil
  require("moonshard.reference").attach(ms)
end
