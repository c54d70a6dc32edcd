#include "viewer/data/overhead.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "runtime/privacy/engine_names.h"

namespace moonshard::viewer {
namespace {

using BaselineKind = Baseline::Kind;

// Modes by their engines' own names, as the rows have them.
std::string engine_or_value(const std::string& axis, const std::string& value) {
  return axis == "mode" ? privacy::canonical_engine(value) : value;
}

// What the run's own sweep compares with.
Baseline own_baseline(const RunData& run) {
  if (run.baseline_axis.empty()) return {BaselineKind::Axis, "", "", "mode", "none"};
  return {BaselineKind::Axis, "", "", run.baseline_axis,
          engine_or_value(run.baseline_axis, run.baseline_value)};
}

// A list of configurations, not a scale: its points differ in names and switches alone.
bool differs_in_choices_alone(const RunData& run) {
  bool differs = false;
  for (const std::string& axis : run.axes) {
    const auto column = run.options.find(axis);
    for (size_t p = 1; column && p < run.points.size(); ++p) {
      const Value &first = run.options.at(0, *column), &value = run.options.at(p, *column);
      if (plain_text(run, first) == plain_text(run, value)) continue;
      differs = true;
      if (value.kind == Value::Kind::Number || first.kind == Value::Kind::Number) return false;
    }
  }
  return differs;
}

}  // namespace

std::optional<PointPlace> find_point(const std::vector<const RunData*>& runs,
                                     const std::string& path, const std::string& id) {
  for (size_t r = 0; r < runs.size(); ++r) {
    if (runs[r]->path != path) continue;
    for (size_t p = 0; p < runs[r]->points.size(); ++p)
      if (runs[r]->points[p].id == id) return PointPlace{r, p};
  }
  return std::nullopt;
}

const OverheadFigure* find_overhead_figure(std::string_view key) {
  for (const OverheadFigure& figure : kOverheadFigures)
    if (key == figure.key) return &figure;
  return nullptr;
}

analysis::Overheads overheads(const std::vector<const RunData*>& runs, const Baseline& baseline) {
  if (baseline.kind == BaselineKind::Sweeps) {
    // Runs of one baseline are compared together, so that a partner may lie in another folder.
    analysis::Overheads result(runs.size());
    std::map<std::pair<std::string, std::string>, analysis::Overheads> known;
    for (size_t r = 0; r < runs.size(); ++r) {
      const Baseline own = own_baseline(*runs[r]);
      const auto [found, added] = known.try_emplace({own.axis, own.value});
      if (added) found->second = overheads(runs, own);
      result[r] = found->second[r];
    }
    return result;
  }
  const std::vector<analysis::Table> tables = analysis_tables(runs, baseline.axis);
  if (baseline.kind == BaselineKind::Axis) {
    const analysis::AxisBaseline on_axis{
        baseline.axis, engine_or_value(baseline.axis, baseline.value), baseline.value};
    return analysis::overheads_on_axis(tables, on_axis);
  }
  if (baseline.kind == BaselineKind::None)
    return analysis::overheads_against(tables, std::nullopt, "no baseline is picked");
  return analysis::overheads_against(
      tables, find_point(runs, baseline.run, baseline.point),
      fmt::format("the baseline, point {}, is not open any more", baseline.point));
}

Baseline default_baseline(const std::vector<const RunData*>& runs) {
  std::optional<Baseline> named;
  for (const RunData* run : runs) {
    if (run->baseline_axis.empty()) continue;
    if (named && *named != own_baseline(*run)) return {BaselineKind::Sweeps, "", "", "", ""};
    named = own_baseline(*run);
  }
  if (named) return *named;
  const std::map<std::string, std::string> aliases = privacy::engine_aliases();
  bool plain = false, others = false;
  for (const RunData* run : runs) {
    const auto column = run->options.find("mode");
    for (size_t p = 0; column && p < run->points.size(); ++p) {
      const std::string mode = plain_text(*run, run->options.at(p, *column));
      const auto alias = aliases.find(mode);
      const bool is_plain = (alias == aliases.end() ? mode : alias->second) == "none";
      plain = plain || is_plain;
      others = others || !is_plain;
      if (plain && others) return {BaselineKind::Axis, "", "", "mode", "none"};
    }
  }
  if (runs.size() == 1 && differs_in_choices_alone(*runs[0]))
    for (const PointHead& point : runs[0]->points)
      if (point.status == "ok") return {BaselineKind::Point, runs[0]->path, point.id, "", ""};
  return {};
}

std::vector<Baseline> baseline_choices(const std::vector<const RunData*>& runs) {
  std::vector<Baseline> choices;
  std::set<std::pair<std::string, std::string>> seen;
  for (const RunData* run : runs) {
    for (const std::string& axis : run->axes) {
      const auto column = run->options.find(axis);
      for (size_t p = 0; column && p < run->points.size(); ++p) {
        const Value& value = run->options.at(p, *column);
        if (value.kind == Value::Kind::None) continue;
        const std::string text = plain_text(*run, value);
        if (seen.insert({axis, text}).second)
          choices.push_back({BaselineKind::Axis, "", "", axis, text});
      }
    }
  }
  return choices;
}

std::string describe(const Baseline& baseline, const std::vector<const RunData*>& runs) {
  if (baseline.kind == BaselineKind::Axis)
    return fmt::format("{} = {}", baseline.axis, baseline.value);
  if (baseline.kind == BaselineKind::None) return "no baseline";
  if (baseline.kind == BaselineKind::Sweeps) return "each sweep's own baseline";
  for (const RunData* run : runs)
    if (run->path == baseline.run) return fmt::format("point {} of {}", baseline.point, run->name);
  return fmt::format("point {} of a run that is not open", baseline.point);
}

}  // namespace moonshard::viewer
