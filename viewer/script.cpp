#include "viewer/script.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/input/open_file.h"

namespace moonshard::viewer {
namespace {

std::string indented(std::string_view lines) {
  std::string text;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    text += fmt::format("  {}\n", lines.substr(at, end - at));
    at = end + 1;
  }
  return text;
}

// costs[point]: what a point costs beyond the baseline that is chosen now.
std::string costs_table(const Baseline& baseline) {
  if (baseline.kind == Baseline::Kind::None) return "local costs = {}\n";
  if (baseline.kind == Baseline::Kind::Sweeps) {
    return "local overhead = require(\"moonshard.analyze.overhead\")\n"
           "local costs = overhead.costs(runs, overhead.baseline_of(runs, {}))\n";
  }
  if (baseline.kind == Baseline::Kind::Axis) {
    return fmt::format(
        "local costs = require(\"moonshard.analyze.overhead\").costs(runs, {}, {})\n",
        lua_text(baseline.axis), lua_text(baseline.value));
  }
  return fmt::format(
      "local only\n"
      "for _, point in ipairs(ms.load({}).points) do\n"
      "  if point.id == {} then only = point end\n"
      "end\n"
      "local costs = only and require(\"moonshard.analyze.overhead\").costs(runs, only) or {{}}\n",
      lua_text(whole_path(baseline.run)), lua_text(baseline.point));
}

std::string figure_expression(const std::string& key) {
  constexpr std::string_view kOverhead = "overhead:";
  if (key.starts_with(kOverhead))
    return fmt::format("(costs[point] or {{}}).{}", key.substr(kOverhead.size()));
  return fmt::format("point.metrics[{}]", lua_text(key));
}

}  // namespace

std::string script_for(const Workspace& workspace, std::string_view body, std::string_view before) {
  std::string text =
      "-- Made by moonshard view. Run: moonshard run THIS_FILE.lua\n"
      "local ms = require \"moonshard\"\n";
  if (!workspace.filter().nodes.empty()) {
    text += fmt::format("local function wanted(point)\n{}\nend\n", to_lua(workspace.filter()));
  }
  std::string hidden;
  for (size_t r = 0; r < workspace.snapshot().runs.size(); ++r) {
    for (size_t p = 0; p < workspace.run(r).points.size(); ++p) {
      if (workspace.num_hidden() == 0 || !workspace.hidden({r, p})) continue;
      hidden += fmt::format("[{}] = true, ", lua_text(workspace.run(r).points[p].id));
    }
  }
  if (!hidden.empty()) text += fmt::format("local hidden = {{ {}}}\n", hidden);
  text += "for _, path in ipairs {\n";
  for (const LoadedRun& run : workspace.snapshot().runs) {
    text += fmt::format("  {},\n", lua_text(whole_path(run.data->path)));
  }
  text += "} do\n  local runs = ms.load(path)\n";
  text += indented(before);
  if (!workspace.filter().nodes.empty()) {
    text +=
        "  for _, point in ipairs(runs.points) do point.run = runs.name end\n"
        "  runs.points = runs:select(wanted)\n";
  }
  if (!hidden.empty()) {
    text += "  runs.points = runs:select(function(point) return not hidden[point.id] end)\n";
  }
  return text + indented(body) + "end\n";
}

std::string figures_script(const Workspace& workspace, const std::vector<std::string>& keys) {
  bool compares = false;
  std::string titles, values;
  for (const std::string& key : keys) {
    compares = compares || key.starts_with("overhead:");
    titles += fmt::format(", {}", lua_text(key.substr(key.find(':') + 1)));
    values += fmt::format("  add({})\n", figure_expression(key));
  }
  const std::string body = fmt::format(
      "print(table.concat(runs.axes, \"\\t\") .. \"\\t\" .. table.concat({{ \"status\"{} }}, "
      "\"\\t\"))\n"
      "for _, point in ipairs(runs.points) do\n"
      "  local row = {{}}\n"
      "  local function add(value) row[#row + 1] = value == nil and \"-\" or tostring(value) end\n"
      "  for _, name in ipairs(runs.axes) do add(point.options[name]) end\n"
      "  add(point.status)\n"
      "{}"
      "  print(table.concat(row, \"\\t\"))\n"
      "end\n",
      titles, values);
  return script_for(workspace, body, compares ? costs_table(workspace.baseline()) : std::string());
}

std::string figure_script(const Workspace& workspace, std::string_view figure) {
  return script_for(workspace,
                    fmt::format("local out = \"figures/\" .. path:match(\"[^/]*$\")\n"
                                "for _, picture in ipairs(runs:plot {{ {}, out = out }}) do "
                                "print(picture) end",
                                lua_text(figure)));
}

}  // namespace moonshard::viewer
