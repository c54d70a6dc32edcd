--- moonshard report: all of a run on one page to send.
local report = require "moonshard.report"
local usage = require "moonshard.usage"

local function run(given)
  if not given.folder then usage.fail("report: expected a run folder, got nothing; moonshard report --help") end
  print(usage.attempt("ms%.report:", "report:", report.report, given.folder, { output = given.output }))
  return 0
end

return {
  usage = "DIR [--output FILE]",
  about = "Writes DIR/report.html: tables, verdicts, figures, failures, environment and commands of a run on one page,\n"
    .. "which needs no other file and no network. Every sweep writes it at its end.",
  flags = {
    { name = "output", kind = "text", aliases = { "out" }, value = "FILE", doc = "file to write instead of DIR/report.html" },
    { name = "folder", kind = "text", value = "DIR", doc = "the run folder" },
  },
  positional = "folder",
  takes_files = true,
  run = run,
}
