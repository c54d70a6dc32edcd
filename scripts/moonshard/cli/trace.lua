--- moonshard trace: the critical path of a traced step, what it would take without parts of it, and how two traces differ.
local native = require "moonshard.native"
local report = require "moonshard.trace_report"
local trace = require "moonshard.trace"
local usage = require "moonshard.usage"

local verbs = { "path", "whatif", "diff" }

-- "GLOB=FACTOR": the last = divides, as names of kernels may have one.
local function factors(given, flag)
  local values = {}
  for _, text in ipairs(given[flag] or {}) do
    local name, factor = text:match "^(.+)=([^=]*)$"
    if not tonumber(factor) then
      usage.fail("trace: option '--%s': expected NAME=FACTOR, like backward=0.5, got '%s'", flag, text)
    end
    if values[name] then usage.fail("trace: option '--%s': expected one factor of '%s', got several", flag, name) end
    values[name] = tonumber(factor)
  end
  return next(values) and values or nil
end

-- What each verb takes beside rank and json; the others would not change what it says.
local flags_of = {
  path = { "step", "top", "segments" },
  whatif = { "norms", "noise", "plain", "link", "remove", "scale", "phase", "layer", "kind", "step" },
  diff = { "top" },
}

local function refuse_flags_of_others(given, verb)
  local own = {}
  for _, flag in ipairs(flags_of[verb]) do own[flag] = true end
  for _, other in ipairs(verbs) do
    for _, flag in ipairs(flags_of[other]) do
      if given[flag] ~= nil and not own[flag] then
        usage.fail("trace: option '--%s' means nothing to %s (takes %s, rank, json); leave it out, or moonshard trace %s", flag, verb,
          table.concat(flags_of[verb], ", "), other)
      end
    end
  end
  if given.top and given.top < 1 then usage.fail("trace: option '--top': expected 1 row or more, got %d", given.top) end
  if given.segments and not given.json then
    usage.fail "trace: option '--segments': expected --json beside it, which shows every part of the path, got a table"
  end
end

local function show(given, result, text)
  if given.json then
    local plain = {}
    for key, value in pairs(result) do
      -- An empty list would become {}: a table of Lua does not say which of both it is.
      if type(value) ~= "table" or next(value) ~= nil then plain[key] = value end
    end
    io.write(native.records.to_json(plain))
  else
    print(text(result, given.top))
  end
  return 0
end

local function need(words, count, form)
  if #words ~= count then
    usage.fail("trace: expected %s, got %s", form, #words == 0 and "no path" or "'" .. table.concat(words, " ") .. "'")
  end
end

local run = {}

function run.path(given, words)
  need(words, 1, "one trace: moonshard trace path FILE|DIR")
  return show(given, usage.attempt("ms%.trace%.path: ", "trace: ", trace.path, words[1],
    { step = given.step, rank = given.rank, segments = given.segments }), report.path)
end

function run.whatif(given, words)
  need(words, 1, "one trace: moonshard trace whatif FILE|DIR --norms")
  local options = { norms = given.norms, noise = given.noise, plain = given.plain, link = given.link, remove = given.remove,
    names = factors(given, "scale"), phases = factors(given, "phase"), layers = factors(given, "layer"), kinds = factors(given, "kind"),
    step = given.step, rank = given.rank }
  local changes = 0
  for key in pairs(options) do if key ~= "step" and key ~= "rank" then changes = changes + 1 end end
  if changes == 0 then
    usage.fail("trace: whatif: expected something to change, got nothing; give --plain, --norms, --link 2, --remove 'KERNEL*' or "
      .. "--phase backward=0.5")
  end
  return show(given, usage.attempt("ms%.trace%.what_if: ", "trace: ", trace.what_if, words[1], options), report.what_if)
end

function run.diff(given, words)
  need(words, 2, "two traces: moonshard trace diff BEFORE AFTER")
  return show(given, usage.attempt("ms%.trace%.diff: ", "trace: ", trace.diff, words[1], words[2], { rank = given.rank }), report.diff)
end

local function main(given)
  local words = given.words or {}
  local verb = table.remove(words, 1)
  if not verb then usage.fail("trace: expected %s, got nothing; moonshard trace --help", table.concat(verbs, ", ")) end
  if not run[verb] then usage.fail_unknown("trace", ("verb '%s'"):format(verb), verb, verbs) end
  refuse_flags_of_others(given, verb)
  return run[verb](given, words)
end

return {
  usage = "path FILE|DIR | whatif FILE|DIR [changes] | diff BEFORE AFTER",
  about = "Reads Chrome traces, our own (profile = \"trace\") and PyTorch's, also compressed. A folder is that of a point, or of a run "
    .. "with one trace.\n"
    .. "path: what the step waited for, by kind, phase, layer and kernel. whatif: how long it would take with the given changes.\n"
    .. "diff: what differs between two traces, largest change first.",
  flags = {
    { name = "norms", kind = "boolean", doc = "whatif: clipping costs nothing (norms, factors, the first of two backward passes)" },
    { name = "noise", kind = "boolean", doc = "whatif: noise costs nothing" },
    { name = "plain", kind = "boolean", doc = "whatif: both: the step of engine none" },
    { name = "link", kind = "number", doc = "whatif: communication so many times as fast" },
    { name = "remove", kind = "text", repeats = true, value = "GLOB", doc = "whatif: without these kernels, operators or ranges" },
    { name = "scale", kind = "text", repeats = true, value = "GLOB=X", doc = "whatif: X times their time" },
    { name = "phase", kind = "text", repeats = true, value = "NAME=X", doc = "whatif: X times the time of a phase" },
    { name = "layer", kind = "text", repeats = true, value = "GLOB=X", doc = "whatif: X times the time of layers" },
    { name = "kind", kind = "text", repeats = true, value = "NAME=X", doc = "whatif: of host, kernel, communication, memcpy or gap" },
    { name = "step", kind = "int", doc = "path, whatif: which step of the trace, from 1 (the last)" },
    { name = "rank", kind = "int", doc = "which rank of a folder (0)" },
    { name = "top", kind = "int", doc = "path, diff: rows of long tables" },
    { name = "segments", kind = "boolean", doc = "path, with --json: every part of the path" },
    { name = "json", kind = "boolean", doc = "the same as JSON" },
  },
  positional = { name = "words", kind = "text", list = true },
  words = verbs,
  takes_files = true,
  notes = "docs/analysis.md explains what a critical path is, and how well predictions from it hold.",
  run = main,
}
