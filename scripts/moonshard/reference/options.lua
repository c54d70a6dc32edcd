--- Options of functions: native descriptors where there are some, else the lists below. An option is
-- { name, kind, type, default, choices, aliases, doc }; kinds are integer, number, boolean, text, texts, choice, table, function, value.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plan_options = require "moonshard.plan_options"

local M = {}

--- Functions whose options are an experiment's, besides their own.
M.of_experiment = lists.set { "ms.run", "ms.resolve", "ms.sweep", "ms.find_max_batch", "ms.rank_memory", "ms.plan" }

local words = { integer = "int", number = "number", boolean = "true | false", text = "text", texts = "list of texts", table = "table",
  ["function"] = "function" }

local function option(name, kind, default, doc, choices)
  return { name = name, kind = kind, type = choices and table.concat(choices, " | ") or words[kind] or kind, default = default, doc = doc,
    choices = choices, aliases = {} }
end

local function part(name, type_name, doc) return { name = name, kind = type_name, type = type_name, doc = doc, aliases = {} } end

local dtypes = { "float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "int8", "bool" }
local tensor = { option("dtype", "choice", "float32", "number format", dtypes),
  option("device", "choice", "cpu", "where it lies", { "cpu", "cuda", "auto" }) }
local methods = { "prv", "rdp", "pld", "gaussian", "gdp" }
local baseline = { option("baseline", "value", nil, "value of the axis that the others are compared with; the sweep's own, else \"none\""),
  option("axis", "text", "mode", "the option that the baseline is a value of") }

local generation = {
  option("prompt", "value", nil, "a text, a list of token ids, or a list of either; needed"),
  part("tokenizer", "Tokenizer", "of texts: a Tokenizer, a path or \"bytes\"; that of the model's folder"),
  option("stop", "value", nil, "ids, or texts of one token each, that end a text; those of the model's folder, else the tokenizer's end of "
    .. "text; false: none"),
  option("on_token", "function", nil, "called with (number of the prompt, id, piece of text) for each token as it comes"),
  option("stream", "boolean", nil, "of a single prompt: show the text as it comes; by itself at the REPL's prompt") }

local own = {
  ["ms.tensor"] = tensor, ["ms.zeros"] = tensor, ["ms.ones"] = tensor, ["ms.arange"] = tensor, ["ms.randn"] = tensor,
  ["ms.trainer"] = {
    part("model", "Model", "the model to train: ms.model(…); needed"),
    part("clip", "table", "the clipping engine: ms.clip(…); without it plain training"),
    part("optimizer", "table", "the update rule: ms.optim.sgd {…}, adam or adamw; sgd"),
    part("data", "Data", "batches: ms.data.loader {…} or ms.data.synthetic {…}; synthetic ones"),
    part("parallel", "table", "how ranks share the work: ms.ddp {…} or ms.fsdp {…}; not at all"),
    part("privacy", "table", "the budget and its accountant: { target_epsilon, delta, epochs, … }, see below"),
  },
  ["ms.clip"] = { option("groups", "table", nil,
    "list of { match = globs, max_grad_norm = bound }: clip_groups as a table (docs/engines.md)") },
  ["ms.fsdp"] = { option("policies", "table", nil, "list of { units = globs, dtype = …, reduce_dtype = …, reshard = …, offload = … }: "
    .. "unit_policies as a table (docs/parallel.md)") },
  ["ms.ddp"] = { option("policies", "table", nil,
    "list of { units = globs, reduce_dtype = … }: unit_policies as a table (docs/parallel.md)") },
  ["ms.data.text"] = { part("model", "Model", "checks that its vocabulary and task fit") },
  ["ms.data.synthetic"] = { part("model", "Model", "gives the shapes, so that data:next() works before a trainer has it") },
  ["ms.data.classification"] = { part("labels", "string[]", "names of the classes in order; those of the file, sorted"),
    part("model", "Model", "checks that its vocabulary and number of labels fit") },
  ["ms.data.loader"] = { part("dataset", "Dataset", "what is drawn from: ms.data.text or ms.data.classification; needed") },
  ["ms.register_engine"] = { option("norms", "function", nil, "(layer, a, g) -> squared norms [B]; needed"),
    option("keep", "choice", "inputs", "sum from what was kept, or by a second backward pass", { "inputs", "nothing" }),
    option("doc", "text", "registered by a script", "what ms.engines() says of it") },
  ["ms.register_rule"] = { option("per_sample", "function", nil, "(layer, a, g) -> gradients [B, shape of the weight]; needed"),
    option("squares", "function", nil, "(layer, a, g) -> squared norms [B]; without it from per_sample") },
  ["ms.privacy.epsilon"] = { option("method", "choice", "prv", "accountant; gdp is no guarantee, gaussian needs q = 1", methods),
    option("q", "number", nil, "sampling rate: batch size over samples"), option("sigma", "number", nil, "noise multiplier"),
    option("steps", "number", nil, "noised steps"), option("delta", "number", nil, "delta of the claim; needed"),
    option("orders", "table", nil, "rdp: list of orders above 1"),
    option("phases", "table", nil, "list of { q, sigma, steps } instead of the three") },
  ["ms.privacy.calibrate"] = { option("method", "choice", "prv", "accountant", methods),
    option("q", "number", nil, "sampling rate; leave out what is looked for"), option("sigma", "number", nil, "noise multiplier"),
    option("steps", "number", nil, "noised steps"), option("delta", "number", nil, "delta of the claim; needed"),
    option("target_epsilon", "number", nil, "the budget; needed"),
    option("epsilon_tolerance", "number", nil, "how far below the target the answer may stay") },
  ["ms.rank_memory"] = { option("ranks", "integer", 1, "number of ranks") },
  ["ms.plan"] = lists.map(plan_options.own, function(own_option)
    local usual = own_option.usual and "; " .. own_option.usual or ""
    return option(own_option.name, own_option.type, own_option.default, own_option.doc .. usual)
  end),
  ["ms.trace.path"] = { option("step", "integer", nil, "which step of the trace, from 1; the last"),
    option("rank", "integer", 0, "whose trace, where path is a folder"),
    option("segments", "boolean", false, "also every part of the path, in the order of time") },
  ["ms.trace.what_if"] = {
    option("norms", "boolean", false, "clipping costs nothing: no norms, no factors, no first of two backward passes"),
    option("noise", "boolean", false, "noise costs nothing: an update is one pass over its memory"),
    option("plain", "boolean", false, "both: the step of engine none"),
    option("link", "number", nil, "communication so many times as fast"),
    option("remove", "texts", nil, "globs of kernels, operators or ranges that are not there"),
    option("names", "table", nil, "glob = factor: of the time of kernels, operators or ranges"),
    option("phases", "table", nil, "glob = factor: of phases"), option("layers", "table", nil, "glob = factor: of layers"),
    option("kinds", "table", nil, "of host, kernel, communication, memcpy or gap"),
    option("step", "integer", nil, "which step of the trace, from 1; the last"),
    option("rank", "integer", 0, "whose trace, where path is a folder") },
  ["ms.trace.diff"] = { option("rank", "integer", 0, "whose traces, where paths are folders") },
  ["ms.profile"] = { option("iters", "integer", 5, "measured steps"), option("warmup", "integer", 1, "steps before them") },
  ["Trainer:fit"] = {
    option("epochs", "number", nil, "passes over the data; the plan of the trainer's budget where neither this nor steps is given"),
    option("steps", "integer", nil, "number of the last step, those before a resume included"),
    part("evaluate", "Dataset", "what is evaluated on, after the last step and every evaluate_every: a dataset or a list of batches"),
    option("evaluate_every", "integer", nil, "steps from one evaluation to the next"),
    option("evaluate_options", "table", nil, "options of ms.evaluate"),
    option("metric", "choice", "loss", "the figure that says which evaluation is best", { "loss", "perplexity", "accuracy", "macro_f1" }),
    option("patience", "integer", nil, "stops after so many evaluations that are no better than the best"),
    option("best", "text", nil, "folder of the checkpoint with the best evaluation"),
    option("on_step", "function", nil, "called with each step's report; false ends the run, on all ranks alike"),
    option("on_evaluate", "function", nil, "called with (evaluation, step); false ends the run"),
    option("name", "text", "fit", "part of the run folder's name"),
    option("out", "text", "results", "where the run folder is made; of a durable run beside its checkpoints"),
    option("options", "table", nil, "what tells this run from others, in tables and figures"),
    option("record_norms", "boolean", nil,
      "quantiles of the samples' gradient norms in the curve; by itself only where no epsilon is claimed"),
    option("log", "boolean", true, "write a run folder"),
    option("progress", "boolean", true, "a moving line on a terminal, a line now and then elsewhere; on the first rank") },
  ["Model:generate"] = generation, ["Trainer:generate"] = generation,
  ["ms.report"] = { option("output", "text", nil, "another file than report.html in the folder") },
  ["ms.compare"] = { option("all", "boolean", false, "also what agrees"), option("metrics", "texts", nil, "figures to show"),
    option("only", "table", nil, "option = glob: points that count") },
  ["ms.analyze.overhead"] = baseline, ["Runs:overhead"] = baseline,
  ["ms.analyze.scaling"] = { option("axis", "text", "seq_length", "the option that grows") },
  ["ms.analyze.bottleneck"] = { option("thresholds", "table", nil, "where a share counts as high, by name") },
  ["Runs:best"] = { option("most", "boolean", nil, "the most is the best, whatever the metric's name says"),
    option("least", "boolean", nil, "the least is the best") },
  ["Runs:plot"] = { option("out", "text", nil, "another folder than visualizations in the run folder"),
    option("size", "text", nil, "WIDTHxHEIGHT in pixels, e.g. 1200x600"), option("scale", "number", nil, "pixels per point, 1 to 4"),
    option("theme", "choice", nil, "colours", { "light", "dark" }),
    option("format", "value", "png", "png, svg or pdf, or a list of them") },
  ["ms.plot"] = { option("data", "value", nil, "or the first item: list of rows or numbers, table of columns, results, Table; needed"),
    option("x", "text", "x", "column of the x axis; rows are counted where there is no column x"),
    option("y", "value", "y", "column of the figures, or a list of columns; of a heatmap the column of its rows"),
    option("group", "value", nil, "column (or list of columns) whose values are series of their own; color is the same"),
    option("color", "value", nil, "another name of group"),
    option("value", "text", nil, "heatmap: column that colours the cells"),
    option("panels", "text", nil, "column whose values are panels of their own"),
    option("kind", "choice", nil, "lines, or bars where x has texts", { "lines", "points", "bars", "stacked_bars", "area", "heatmap" }),
    option("stat", "choice", "median", "figure of several rows with one x; mean with std and sem", { "median", "mean" }),
    option("error", "value", "iqr", "whiskers of several rows: iqr, std, sem, range or false; or a column, or { low, high } columns"),
    option("text", "text", nil, "column written beside points"),
    option("log", "choice", nil, "logarithmic axes", { "x", "y", "xy" }),
    option("horizontal", "boolean", false, "bars: categories from top to bottom"),
    option("title", "text", "", "above the figure"), option("note", "text", nil, "below it; says what points of several rows are"),
    option("x_label", "text", nil, "the column's name"), option("y_label", "text", nil, "the column's name"),
    option("x_unit", "text", nil, "in brackets behind the label"), option("y_unit", "text", nil, "in brackets behind the label"),
    option("x_range", "table", nil, "{ low, high }: ends of the axis"), option("y_range", "table", nil, "{ low, high }: ends of the axis"),
    option("references", "table", nil, "list of { y = 1, text = … } (horizontal), { x = 1 } (vertical), or curves of lists"),
    option("size", "text", "900x520", "WIDTHxHEIGHT in pixels"), option("scale", "number", 2, "PNG: pixels per point, 1 to 4"),
    option("theme", "choice", "light", "colours", { "light", "dark" }),
    option("out", "value", nil, "file, or list of files, that end in .png, .svg or .pdf; a temporary PNG") },
  ["ms.log.run"] = { option("name", "text", "", "part of the folder's name"), option("out", "text", "results", "folder of the run folder"),
    option("options", "table", nil, "name = value: what tells this point from others; columns of tables"),
    option("tags", "table", nil, "list of texts that sweep.json keeps"),
    option("note", "text", nil, "a text that is kept in the same way") },
  ["ms.find_max_batch"] = { option("low", "integer", 1, "first size that is tried"),
    option("high", "integer", nil, "largest size; on a CPU it or memory_limit_mb is needed"),
    option("verify", "boolean", true, "run the answer once more with all iterations"),
    option("timeout", "number", 0, "seconds per try; 0: no limit"), option("name", "text", "max_batch", "part of the folder's name"),
    option("out", "text", "results", "folder of the run folder"), option("resume", "text", nil, "run folder to go on with"),
    option("lock", "boolean", true, "wait for the lock of each GPU; false does not"), option("quiet", "boolean", false, "say nothing") },
  ["ms.sweep"] = { option("name", "text", "", "name of the sweep, part of its folder's name"),
    option("out", "text", "results", "folder of the run folder"),
    option("grid", "table", nil, "option = { values }: all combinations"),
    option("zip", "table", nil, "option = { values }: values that change together"),
    option("when", "function", nil, "of effective options and the axes' values: false drops a point"),
    option("each", "function", nil, "of a record, after each point, good or bad"),
    option("run", "function", nil, "of a point and log: a point of your own; returns { metric = value } (docs/sweeps.md)"),
    option("search", "table", nil, "instead of a grid: { trials, minimize or maximize, space, method, seed, prune } (docs/sweeps.md)"),
    option("tags", "table", nil, "list of texts that sweep.json keeps; compare and the report show them"),
    option("note", "text", nil, "a text that is kept and shown in the same way"),
    option("expect", "table", nil, "list of claims that are judged at the end (docs/sweeps.md)"),
    option("baseline", "value", nil, "a mode, or { option = value }, that overheads are taken against"),
    option("growing", "table", nil, "axes along which a point needs more memory: larger ones than one that ran out are skipped"),
    option("seed_result", "function", nil, "of a record and a point: name and content of the result file at the top of the run folder") },
  ["Sweep:run"] = { option("resume", "text", nil, "run folder to go on with"), option("dry_run", "boolean", false, "list the points only"),
    option("retry", "integer", 0, "more attempts of a point that failed"), option("timeout", "number", 0, "seconds per point; 0: no limit"),
    option("budget", "number", nil, "seconds for this call: no point begins that is not expected to end within"),
    option("fail_fast", "boolean", false, "stop at the first failure"),
    option("all", "boolean", false, "skip no point for lack of memory"),
    option("only", "table", nil, "option = glob: points that are run"),
    option("shuffle", "value", false, "true or a seed: in another order"),
    option("launcher", "choice", "local", "where points run", { "local", "slurm" }), option("slurm_args", "text", nil, "words for sbatch"),
    option("lock", "boolean", true, "wait for the lock of each GPU; false does not"),
    option("retry_oom", "boolean", false, "with resume: run points again that were out of memory"),
    option("parallel", "integer", 1, "points side by side; their times disturb each other"),
    option("drain_timeout", "number", 30, "seconds a stopped point has to end") },
}

local function preset_names() return lists.column(package.loaded["moonshard"].models(), "name") end
local function engine_names() return lists.column(package.loaded["moonshard"].engines(), "name") end
local function figures() return lists.extend({ "all" }, require("moonshard.plots").figures) end

-- Words that a text may be: of an option by its name, of the first argument by the function's.
local values = { model = preset_names, ["ms.model"] = preset_names, ["ms.clip"] = engine_names, engine = engine_names,
  tokenizer = function() return { "bytes" } end, ["ms.tokenizer"] = function() return { "bytes" } end, ["Runs:plot"] = figures,
  ["Tensor:to"] = function() return lists.extend({ "cpu", "cuda" }, dtypes) end,
  ["Table:to"] = function() return { "text", "md", "latex", "csv", "json" } end,
  ["Runs:tabulate"] = function() return { "points", "overhead", "phases", "memory" } end,
  ["Runs:count"] = function() return { "ok", "oom", "failed", "timeout", "skipped" } end }
values["Runs:select"] = values["Runs:count"]

--- Words that a text usually is; nil when it may be anything.
-- @tparam string name of an option, or of a function whose argument it is
-- @tparam[opt=1] number position of the argument
function M.values(name, position)
  if (position or 1) ~= 1 then return nil end
  return values[name] and values[name]()
end

--- Options of the experiment, as ms.run takes them.
function M.experiment() return native.docs.options("ms.run") end

--- Options of a function, its own first and those of descriptors behind them; nil when it takes none.
-- @tparam string name e.g. "ms.clip", "Sweep:run", or "ms.trainer.privacy" for a part of an option table
-- @tparam[opt] boolean without_shared leave the options of an experiment out where the function has others of its own
function M.of(name, without_shared)
  local list = lists.extend({}, own[name] or {})
  if name == "ms.run" or M.of_experiment[name] and not without_shared then
    lists.extend(list, M.experiment())
  else
    lists.extend(list, native.docs.options(name) or {})
  end
  return #list > 0 and list or nil
end

--- Names of functions with options of their own, sorted.
function M.names() return lists.keys(own) end

return M
