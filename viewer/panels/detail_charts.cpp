#include "viewer/panels/detail_charts.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "viewer/panels/grouping.h"
#include "viewer/widgets/colors.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxStackParts = 40;  // more are never told apart; the others are added up

void describe_no_points(const Workspace& workspace, Chart& chart) {
  say_why_empty(workspace.snapshot(), "No points to show",
                "The filter takes none of the points, or all are hidden: change it above the run "
                "table.",
                chart);
}

}  // namespace

std::optional<double> figure(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

std::vector<std::string> point_labels(const Workspace& workspace, const std::vector<PointRef>& refs,
                                      const std::string& without) {
  std::vector<std::string> labels = labels_without(
      workspace, refs, without.empty() ? std::vector<std::string>() : std::vector{without});
  std::map<std::string, size_t> count;
  for (const std::string& label : labels) ++count[label];
  for (size_t i = 0; without.empty() && i < labels.size(); ++i) {
    if (!labels[i].empty() && count[labels[i]] == 1) continue;
    // Nothing swept tells them apart: their ids do.
    labels[i] += (labels[i].empty() ? "" : ", ") + workspace.head(refs[i]).id;
  }
  return labels;
}

records::PlotAxis point_axis(const Workspace& workspace, const std::vector<PointRef>& refs,
                             const std::string& without) {
  std::vector<std::string> axes;
  std::map<size_t, std::vector<size_t>> points;
  for (const PointRef& ref : refs) points[ref.run].push_back(ref.point);
  for (const auto& [run, list] : points) {
    for (const std::string& axis : telling_axes(workspace.run(run), list)) {
      if (axis != without && std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
    }
  }
  records::PlotAxis axis;
  axis.categories = point_labels(workspace, refs, without);
  if (axes.empty()) {
    axis.label = without.empty() ? "point" : "";
  } else if (axes.size() > 3 || points.size() > 1) {
    axis.label = "configuration";
  } else {
    for (const std::string& name : axes) {
      axis.label += (axis.label.empty() ? "" : ", ") + axis_title(name);
    }
    if (axes.size() == 1) axis.unit = axis_unit(axes[0]);
  }
  return axis;
}

std::string missing_word(const Workspace& workspace, const DetailedPoint& point, bool waiting) {
  const std::string& status = workspace.head(point.ref).status;
  if (status != "ok" && !status.empty()) return status;
  return !point.detail && waiting ? "reading" : "no value";
}

std::string hover_label(const Workspace& workspace, PointRef ref) {
  const PointHead& head = workspace.head(ref);
  const std::string& name = workspace.short_name(ref);
  return head.error.empty() ? name : fmt::format("{}: {}", name, clean_text(head.error, 256));
}

bool add_stacked_bars(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                      const StackAsk& ask, Chart& chart) {
  const size_t num_parts = std::min(ask.parts.size(), kMaxStackParts);
  const bool others = ask.parts.size() > kMaxStackParts;
  std::vector<std::vector<double>> values(num_parts + others, std::vector<double>(points.size()));
  std::vector<double> totals(points.size(), 0.0);
  for (size_t i = 0; i < points.size(); ++i) {
    if (!points[i].detail || workspace.head(points[i].ref).status != "ok") continue;
    for (size_t p = 0; p < ask.parts.size(); ++p) {
      const double value = ask.value(*points[i].detail, ask.parts[p]);
      if (!std::isfinite(value) || value <= 0) continue;
      values[std::min(p, values.size() - 1)][i] += value;
      totals[i] += value;
    }
  }
  const double largest = totals.empty() ? 0 : *std::ranges::max_element(totals);
  if (!(largest > 0)) return false;
  const Unit unit = ask.bytes ? memory_unit(largest) : time_unit(largest);
  std::vector<PointRef> refs;
  for (const DetailedPoint& point : points) refs.push_back(point.ref);
  records::PlotPanel panel;
  panel.kind = records::PlotKind::StackedBars;
  panel.horizontal = points.size() > kMostUprightPoints;
  panel.x = point_axis(workspace, refs);
  panel.y.label = ask.label;
  panel.y.unit = ask.share ? "%" : unit.name;
  for (size_t p = 0; p < values.size(); ++p) {
    const auto has = [](double value) { return value > 0; };
    if (std::ranges::none_of(values[p], has)) continue;
    records::PlotSeries series;
    series.name = p < num_parts ? shown_name(ask.parts[p]) : "others";
    for (size_t i = 0; i < points.size(); ++i) {
      // A part that one point does not have is nothing; a point without any part is a failure.
      const bool known = totals[i] > 0;
      const double factor = ask.share ? 100 / totals[i] : unit.factor;
      series.x.push_back(static_cast<double>(i));
      series.y.push_back(known ? figure(values[p][i] * factor) : std::nullopt);
      series.status.push_back(known ? "ok" : missing_word(workspace, points[i], chart.waiting));
      series.labels.push_back(hover_label(workspace, points[i].ref));
    }
    panel.series.push_back(std::move(series));
  }
  chart.refs.push_back(std::vector<std::vector<PointRef>>(panel.series.size(), refs));
  chart.spec.panels.push_back(std::move(panel));
  chart.spec.width = 1000;
  chart.spec.height = stack_height(points.size());
  return true;
}

bool say_no_points(const Workspace& workspace, Chart& chart) {
  if (workspace.shown().empty()) describe_no_points(workspace, chart);
  return workspace.shown().empty();
}

void say_nothing_shown(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                       const std::string& what, const std::string& next, Chart& chart) {
  if (points.empty()) return describe_no_points(workspace, chart);
  std::map<std::string, size_t> counts;
  for (const DetailedPoint& point : points)
    ++counts[clean_text(workspace.head(point.ref).status, 16)];
  std::string statuses;
  for (const auto& [status, count] : counts) {
    statuses += fmt::format("{}{} {}", statuses.empty() ? "" : ", ", count, status);
  }
  chart.empty_what = what;
  chart.empty_next = fmt::format("Points shown: {}. {}", statuses, next);
}

std::vector<NamedDetail> selected_and_baseline(const PanelContext& context, bool with_baseline,
                                               Chart& chart) {
  const Workspace& workspace = context.workspace;
  std::shared_ptr<const PointDetail> detail = selected_detail(context, chart);
  if (!detail) return {};
  const PointRef selected = *workspace.selected_point();
  const auto color = [&](PointRef ref) {
    const std::string engine = workspace.option_text(ref, "mode");
    return named_series_color(engine).value_or(NamedDetail().color);
  };
  std::vector<NamedDetail> found{
      {workspace.short_name(selected), selected, std::move(detail), color(selected)}};
  if (!with_baseline) return found;
  std::optional<PointRef> other = workspace.overhead(selected).baseline;
  std::string word = "baseline: ";
  if (!other || *other == selected) {
    other.reset();
    word = "pinned: ";
    const auto first = std::ranges::find_if(workspace.shown(),
                                            [&](const PointRef& ref) { return ref != selected; });
    // Pinned points come first.
    if (first != workspace.shown().end() && workspace.pinned(*first)) other = *first;
  }
  if (!other) return found;
  const Loaded<PointDetail> loaded = context.detail(*other);
  chart.waiting = chart.waiting || (loaded.loading && !loaded.value);
  if (loaded.value) {
    found.push_back({word + workspace.short_name(*other), *other, loaded.value, color(*other)});
  }
  return found;
}

}  // namespace moonshard::viewer
