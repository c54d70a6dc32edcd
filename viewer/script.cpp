#include "viewer/script.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

namespace moonshard::viewer {
namespace {

std::string whole_path(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

std::string indented(std::string_view lines) {
  std::string text;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    text += fmt::format("  {}\n", lines.substr(at, end - at));
    at = end + 1;
  }
  return text;
}

// baseline_of(point): what a point is compared with, by the same rule as in the window.
std::string baseline_function(const Baseline& baseline) {
  if (baseline.kind == Baseline::Kind::Point) {
    return fmt::format(
        "local only\n"
        "for _, point in ipairs(ms.load({}).points) do\n"
        "  if point.id == {} then only = point end\n"
        "end\n"
        "local function baseline_of() return only end\n",
        lua_text(whole_path(baseline.run)), lua_text(baseline.point));
  }
  if (baseline.kind == Baseline::Kind::None) return "local function baseline_of() end\n";
  return fmt::format(
      "local all, axis = runs.points, {}\n"
      "local function is_baseline(value)\n"
      "  if axis == \"mode\" then value = require(\"analyze.overhead\").canonical_mode(value) end\n"
      "  return tostring(value) == {}\n"
      "end\n"
      "local function baseline_of(point)\n"
      "  for _, other in ipairs(all) do\n"
      "    local same = is_baseline(other.options[axis])\n"
      "    for _, name in ipairs(runs.axes) do\n"
      "      same = same and (name == axis or other.options[name] == point.options[name])\n"
      "    end\n"
      "    if same then return other end\n"
      "  end\n"
      "end\n",
      lua_text(baseline.axis),
      lua_text(baseline.axis == "mode" ? canonical_mode(baseline.value) : baseline.value));
}

constexpr std::string_view kCosts =
    "local function time_of(point)\n"
    "  return point.metrics.median_time_ms or point.metrics.avg_time_ms or 0 / 0\n"
    "end\n"
    "local function bytes_of(point)\n"
    "  return point.metrics.peak_memory_bytes or (point.metrics.peak_memory_mb or 0 / 0) * 2^20\n"
    "end\n"
    "local function rate_of(point)\n"
    "  return point.metrics.tokens_per_s or point.metrics.samples_per_s or 0 / 0\n"
    "end\n";

std::string figure_expression(const std::string& key) {
  if (key == "overhead:time_ratio") return "other and time_of(point) / time_of(other)";
  if (key == "overhead:memory_bytes") return "other and bytes_of(point) - bytes_of(other)";
  if (key == "overhead:memory_percent") {
    return "other and 100 * (bytes_of(point) / bytes_of(other) - 1)";
  }
  if (key.starts_with("overhead:")) return "other and rate_of(point) / rate_of(other)";
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
      "{}{}"
      "  print(table.concat(row, \"\\t\"))\n"
      "end\n",
      titles, compares ? "  local other = baseline_of(point)\n" : "", values);
  return script_for(
      workspace, body,
      compares ? baseline_function(workspace.baseline()) + std::string(kCosts) : std::string());
}

std::string figure_script(const Workspace& workspace, std::string_view figure) {
  return script_for(workspace,
                    fmt::format("local out = \"figures/\" .. path:match(\"[^/]*$\")\n"
                                "for _, picture in ipairs(runs:plot {{ {}, out = out }}) do "
                                "print(picture) end",
                                lua_text(figure)));
}

}  // namespace moonshard::viewer
