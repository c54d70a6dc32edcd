// The memory timeline panel: memory through one step of the selected point, stacked by owner, with
// the phases as a ruler; below it the same of its baseline. The cursor is that of the trace.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "runtime/analysis/rows.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/widgets/choice.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxMoments = 3000;  // drawn; more than there are pixels
constexpr size_t kMaxBands = 400;     // phases on the ruler
constexpr size_t kMaxOwners = 40;

bool in_order_of_time(const MemoryTimeline& timeline) {
  const auto finite = [](double ms) { return std::isfinite(ms); };
  return std::ranges::all_of(timeline.ms, finite) && std::ranges::is_sorted(timeline.ms);
}

double bytes_at(const std::vector<double>& bytes, size_t i) {
  return std::isfinite(bytes[i]) ? std::max(bytes[i], 0.0) : 0.0;
}

// What the parts add up to: the height of the stack, which need not be the record's total.
std::vector<double> stack_heights(const MemoryTimeline& timeline) {
  std::vector<double> sums(timeline.ms.size(), 0.0);
  for (const records::Named<std::vector<double>>& owner : timeline.owners) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += bytes_at(owner.value, i);
  }
  const bool no_owners = std::ranges::none_of(sums, [](double sum) { return sum > 0; });
  for (size_t i = 0; no_owners && i < sums.size(); ++i) sums[i] = bytes_at(timeline.total, i);
  return sums;
}

// Which moments are drawn: all, or of each stretch the first and the highest, so that no peak is
// lost.
std::vector<size_t> thinned(const std::vector<double>& heights) {
  std::vector<size_t> kept;
  const size_t count = heights.size();
  if (count <= kMaxMoments) {
    for (size_t i = 0; i < count; ++i) kept.push_back(i);
    return kept;
  }
  const size_t stretches = kMaxMoments / 2;
  for (size_t s = 0; s < stretches; ++s) {
    const size_t from = s * count / stretches, to = (s + 1) * count / stretches;
    const auto highest = std::max_element(heights.begin() + static_cast<long>(from),
                                          heights.begin() + static_cast<long>(to));
    const auto at = static_cast<size_t>(highest - heights.begin());
    kept.push_back(from);
    if (at != from) kept.push_back(at);
  }
  if (kept.back() != count - 1) kept.push_back(count - 1);
  return kept;
}

std::vector<records::PlotBand> bands_of(const MemoryTimeline& timeline) {
  std::vector<records::PlotBand> bands;
  for (size_t i = 0; i < timeline.phase.index.size() && i < timeline.ms.size(); ++i) {
    if (i > 0 && timeline.phase.index[i] == timeline.phase.index[i - 1]) continue;
    if (!bands.empty()) bands.back().to = timeline.ms[i];
    if (bands.size() == kMaxBands) break;
    const uint32_t phase = timeline.phase.index[i];
    const std::string name = phase < timeline.phase.names.size() ? timeline.phase.names[phase] : "";
    bands.push_back({timeline.ms[i], timeline.ms.back(), shown_name(name)});
  }
  return bands;
}

records::PlotSeries series_of(const std::string& name, const MemoryTimeline& timeline,
                              const std::vector<double>& bytes, const std::vector<size_t>& moments,
                              double factor) {
  records::PlotSeries series;
  series.name = name;
  for (const size_t i : moments) {
    series.x.push_back(timeline.ms[i]);
    series.y.push_back(bytes_at(bytes, i) * factor);
  }
  return series;
}

size_t num_steps(const NamedDetail& point) {
  return std::max<size_t>(point.detail->memory.timeline.step_begins_ms.size(), 1);
}

records::PlotPanel panel_of(const NamedDetail& point, double factor) {
  const MemoryTimeline& timeline = point.detail->memory.timeline;
  records::PlotPanel panel;
  panel.kind = records::PlotKind::StackedArea;
  panel.title = point.name;
  panel.x = {num_steps(point) > 1 ? "time since the first step began" : "time in the step", "ms"};
  panel.bands = bands_of(timeline);
  const std::vector<size_t> moments = thinned(stack_heights(timeline));
  std::vector<std::string> names;
  for (const records::Named<std::vector<double>>& owner : timeline.owners)
    names.push_back(owner.name);
  for (const std::string& name : analysis::owners_in_order(names)) {
    for (const records::Named<std::vector<double>>& owner : timeline.owners) {
      if (owner.name != name || panel.series.size() >= kMaxOwners) continue;
      const auto held = [](double bytes) { return std::isfinite(bytes) && bytes > 0; };
      if (std::ranges::none_of(owner.value, held)) continue;
      panel.series.push_back(series_of(shown_name(name), timeline, owner.value, moments, factor));
      break;
    }
  }
  if (panel.series.empty()) {
    panel.series.push_back(series_of("total", timeline, timeline.total, moments, factor));
  }
  return panel;
}

class MemoryTimelinePanel final : public ChartPanel {
 public:
  MemoryTimelinePanel()
      : ChartPanel({"memory_timeline", "Memory timeline", DockPlace::Detail, "memory_timeline"}) {}
  std::vector<std::pair<std::string, std::string>> shortcuts() const override {
    return {{"Mouse", "the cursor moves in the trace, too"}};
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    if (!context.workspace.selected_point()) return;
    const Choice choice{"with its baseline",
                        "The point's baseline below it, on the same axes; without a baseline the "
                        "first pinned point."};
    if (choose_whether(choice, with_baseline_)) remake();
  }
  bool x_is_step_time() const override { return true; }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const std::vector<NamedDetail> points = selected_and_baseline(context, with_baseline_, chart);
    if (points.empty()) return;
    make_timeline_chart(points, chart);
    const std::string device = context.workspace.option_text(points[0].ref, "device");
    if (device.starts_with("cuda") && !chart.spec.panels.empty()) {
      chart.spec.note =
          "Time is the host's: when the work was asked for, which the GPU does a little later.";
    }
  }

 private:
  bool with_baseline_ = true;
};

}  // namespace

void make_timeline_chart(const std::vector<NamedDetail>& points, Chart& chart) {
  const auto usable = [](const NamedDetail& point) {
    const MemoryTimeline& timeline = point.detail->memory.timeline;
    return timeline.ms.size() >= 2 && in_order_of_time(timeline);
  };
  if (points.empty() || !usable(points[0])) {
    const bool broken = !points.empty() && points[0].detail->memory.timeline.ms.size() >= 2;
    chart.empty_what = broken ? "The timeline of this point cannot be drawn"
                              : "This point has no timeline of memory";
    chart.empty_next = broken ? "Its moments are not in the order of time."
                              : "It is recorded with --profile phases (the default), layers or "
                                "trace; in a script: profile = \"phases\".";
    return;
  }
  double highest = 0, first = INFINITY, last = -INFINITY;
  for (const NamedDetail& point : points) {
    if (!usable(point)) continue;
    for (const double height : stack_heights(point.detail->memory.timeline)) {
      highest = std::max(highest, height);
    }
    first = std::min(first, point.detail->memory.timeline.ms.front());
    last = std::max(last, point.detail->memory.timeline.ms.back());
  }
  const Unit unit = memory_unit(highest);
  for (const NamedDetail& point : points) {
    if (!usable(point)) continue;
    records::PlotPanel panel = panel_of(point, unit.factor);
    panel.y = {"memory", unit.name};
    chart.refs.emplace_back();
    for (const records::PlotSeries& series : panel.series) {
      chart.refs.back().emplace_back(series.x.size(), point.ref);
    }
    chart.spec.panels.push_back(std::move(panel));
  }
  for (records::PlotPanel& panel : chart.spec.panels) {
    if (chart.spec.panels.size() < 2) break;
    panel.x.min = first;
    panel.x.max = last;
    panel.y.min = 0.0;
    panel.y.max = highest * unit.factor * 1.04;
  }
  const size_t steps = num_steps(points[0]);
  chart.spec.title = steps > 1 ? fmt::format("Memory through {} watched steps", steps)
                               : "Memory through the watched step";
  chart.spec.columns = 1;
  chart.spec.width = 1000;
  chart.spec.height = chart.spec.panels.size() > 1 ? 820 : 560;
}

const MakePanel make_memory_timeline_panel = make_panel<MemoryTimelinePanel>;

}  // namespace moonshard::viewer
