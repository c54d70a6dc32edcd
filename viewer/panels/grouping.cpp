#include "viewer/panels/grouping.h"

#include <algorithm>
#include <map>
#include <set>

#include <imgui.h>

#include "runtime/privacy/engine_names.h"
#include "viewer/panels/chart_points.h"
#include "viewer/widgets/axis_names.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using PointsOfRuns = std::map<size_t, std::vector<size_t>>;
using Names = std::vector<std::string>;

PointsOfRuns points_by_run(const std::vector<PointRef>& refs) {
  PointsOfRuns points;
  for (const PointRef& ref : refs) points[ref.run].push_back(ref.point);
  return points;
}

bool has(const std::vector<std::string>& list, const std::string& name) {
  return std::ranges::find(list, name) != list.end();
}

std::set<std::string> values_of(const RunData& run, const std::vector<size_t>& points,
                                const std::string& axis) {
  std::set<std::string> values;
  for (const size_t point : points) values.insert(value_text(run, run.options.get(point, axis)));
  return values;
}

bool is_number(const RunData& run, const std::vector<size_t>& points, const std::string& axis) {
  return std::ranges::all_of(points, [&](size_t point) {
    const Value::Kind kind = run.options.get(point, axis).kind;
    return kind == Value::Kind::Number || kind == Value::Kind::None;
  });
}

// What colours the points of one run by default; empty: nothing does.
std::string color_axis(const RunData& run, const std::vector<size_t>& points) {
  const std::vector<std::string> axes = telling_axes(run, points);
  if (has(axes, "mode")) return "mode";
  if (has(axes, run.baseline_axis) && !is_number(run, points, run.baseline_axis)) {
    return run.baseline_axis;
  }
  for (const std::string& axis : axes) {
    if (axis != "model" && !is_number(run, points, axis)) return axis;
  }
  // One number stands on an axis; of two, that with fewer values makes the series.
  constexpr size_t kMostColors = 8;
  std::string best;
  size_t fewest = kMostColors + 1;
  for (const std::string& axis : axes) {
    const size_t count = values_of(run, points, axis).size();
    if (axes.size() < 2 || count >= fewest) continue;
    fewest = count;
    best = axis;
  }
  return best;
}

std::string value_name(const Workspace& workspace, PointRef ref, const std::string& axis) {
  const Value value = workspace.option(ref, axis);
  if (value.kind == Value::Kind::Number) {
    return axis_word(workspace.run(ref), axis, value, false);
  }
  const std::string text = workspace.option_text(ref, axis);
  if (value.kind != Value::Kind::Bool) return text;
  return (value.number != 0 ? "" : "no ") + shown_name(axis);
}

// "no_dp" of one sweep and "vanilla" of another are one engine: one name, one colour.
void unite_engines(const std::vector<bool>& is_mode, std::vector<std::string>& names) {
  std::map<std::string, std::set<std::string>> spellings;
  const auto engine = [](const std::string& name) { return privacy::canonical_engine(name); };
  for (size_t i = 0; i < names.size(); ++i) {
    if (is_mode[i]) spellings[engine(names[i])].insert(names[i]);
  }
  const bool several = std::ranges::any_of(
      spellings, [](const auto& spelling) { return spelling.second.size() > 1; });
  for (size_t i = 0; several && i < names.size(); ++i) {
    if (is_mode[i]) names[i] = engine(names[i]);
  }
}

}  // namespace

std::vector<std::string> grouping_choices(const Workspace& workspace) {
  std::vector<std::string> choices{kByItself, kByNothing};
  if (workspace.shows_several_runs()) choices.emplace_back(kByRun);
  const std::vector<std::string>& axes = workspace.varying_axes();
  choices.insert(choices.end(), axes.begin(), axes.end());
  return choices;
}

std::vector<std::string> labels_without(const Workspace& workspace,
                                        const std::vector<PointRef>& refs,
                                        const std::vector<std::string>& without, bool with_run,
                                        bool alone, const std::string& over) {
  const PointsOfRuns points = points_by_run(refs);
  std::map<size_t, std::vector<std::string>> axes;
  for (const auto& [run, list] : points) {
    std::vector<std::string>& own = axes[run] =
        telling_axes(workspace.run(run), list, over.empty() ? Names() : Names{over});
    std::erase_if(own, [&](const std::string& axis) { return has(without, axis); });
  }
  const bool several_runs = with_run && points.size() > 1;
  std::map<size_t, std::vector<std::string>> words;
  std::map<size_t, size_t> next;
  for (const auto& [run, list] : points)
    words[run] = words_of_points(workspace.run(run), list, axes[run], alone && !several_runs);
  std::vector<std::string> labels;
  for (const PointRef& ref : refs) {
    const RunData& run = workspace.run(ref);
    std::string label = words[ref.run][next[ref.run]++];
    if (label.empty() && !axes[ref.run].empty()) label = "default";
    if (several_runs) label = label.empty() ? run.name : run.name + ": " + label;
    labels.push_back(clean_text(label, 512));
  }
  return labels;
}

Coloring color_points(const Workspace& workspace, const std::vector<PointRef>& refs,
                      const std::string& by) {
  Coloring coloring;
  coloring.names.resize(refs.size());
  if (by == kByNothing) return coloring;
  std::map<size_t, std::string> axes;
  // By all points on the screen: in a facet with a single engine it is still the engine that has
  // the colour.
  const PointsOfRuns shown = points_by_run(workspace.shown());
  for (const auto& [run, list] : points_by_run(refs)) {
    const auto all = shown.find(run);
    axes[run] = by == kByItself
                    ? color_axis(workspace.run(run), all != shown.end() ? all->second : list)
                    : by;
    if (by != kByRun && !axes[run].empty() && !has(coloring.axes, axes[run])) {
      coloring.axes.push_back(axes[run]);
    }
  }
  coloring.by_run = by == kByRun;
  std::vector<bool> is_mode(refs.size());
  for (size_t i = 0; i < refs.size(); ++i) {
    const std::string& axis = axes[refs[i].run];
    if (by == kByRun) {
      coloring.names[i] = workspace.run(refs[i]).name;
    } else if (!axis.empty()) {
      coloring.names[i] = value_name(workspace, refs[i], axis);
      is_mode[i] = axis == "mode";
    }
  }
  unite_engines(is_mode, coloring.names);
  return coloring;
}

std::string facet_key(const Workspace& workspace, const std::vector<PointRef>& refs,
                      const std::string& by) {
  if (by != kByItself) return by;
  const PointsOfRuns points = points_by_run(refs);
  if (points.size() > 1) return kByRun;
  if (points.empty()) return kByNothing;
  const auto& [run, list] = *points.begin();
  return values_of(workspace.run(run), list, "model").size() > 1 ? "model" : kByNothing;
}

std::vector<Facet> facets_of(const Workspace& workspace, const std::vector<PointRef>& refs,
                             const std::string& by, size_t limit, size_t& left_out) {
  const std::string key = facet_key(workspace, refs, by);
  std::vector<Facet> facets;
  left_out = 0;
  for (const PointRef& ref : refs) {
    std::string title;
    if (key == kByRun) title = workspace.run(ref).name;
    if (key != kByRun && key != kByNothing) title = value_name(workspace, ref, key);
    auto found = std::ranges::find(facets, title, &Facet::title);
    if (found == facets.end()) {
      if (facets.size() == limit) {
        ++left_out;
        continue;
      }
      facets.push_back({std::move(title), {}});
      found = facets.end() - 1;
    }
    found->points.push_back(ref);
  }
  return facets;
}

bool choose_grouping(const Workspace& workspace, std::string* color, std::string* facets) {
  const std::vector<std::string> choices = grouping_choices(workspace);
  bool changed = false;
  for (const auto& [label, value] : {std::pair{"colour", color}, {"facets", facets}}) {
    if (!value) continue;
    if (!has(choices, *value)) {
      *value = kByItself;
      changed = true;
    }
    changed |= choices.size() > 2 && choose_name(label, *value, choices);
  }
  return changed;
}

}  // namespace moonshard::viewer
