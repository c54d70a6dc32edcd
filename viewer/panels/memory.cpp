// The memory panel: who holds the memory of each shown point, stacked by owner.
#include <string>

#include <fmt/format.h>

#include "runtime/analysis/rows.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/script.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/definitions.h"

namespace moonshard::viewer {
namespace {

constexpr const char* kRest = "rest";

const std::vector<OwnedBytes>& parts_of(const PointDetail& detail, bool after_step) {
  return after_step ? detail.memory.after_step : detail.memory.breakdown;
}

double bytes_of(const PointDetail& detail, const std::string& owner, bool after_step) {
  double bytes = NAN;
  for (const OwnedBytes& part : parts_of(detail, after_step)) {
    if (part.owner != owner || !std::isfinite(part.bytes)) continue;
    bytes = (std::isnan(bytes) ? 0 : bytes) + part.bytes;
  }
  // Older records have memory without an owner outside of the list.
  const bool beside = owner == kRest && !after_step && !detail.memory.breakdown.empty();
  return std::isnan(bytes) && beside ? detail.memory.rest_bytes : bytes;
}

// A level line where the baseline ends, when it is one point for all and bars stand upright.
void add_baseline_line(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                       const MemoryChoice& choice, Chart& chart) {
  const Baseline& baseline = workspace.baseline();
  records::PlotPanel& panel = chart.spec.panels.front();
  if (baseline.kind != Baseline::Kind::Point || choice.share || panel.horizontal) return;
  const std::optional<PointRef> ref = workspace.find({baseline.run, baseline.point});
  for (size_t i = 0; ref && i < points.size(); ++i) {
    if (points[i].ref != *ref) continue;
    double total = 0;
    for (const records::PlotSeries& series : panel.series) total += series.y[i].value_or(0.0);
    if (total > 0) panel.references.push_back({"baseline", "", {}, {total}});
  }
}

class MemoryPanel final : public ChartPanel {
 public:
  MemoryPanel() : ChartPanel({"memory", "Memory", DockPlace::Detail}, ChartSubject::ShownPoints) {}
  std::string script(const Workspace& workspace) const override {
    if (moment_ == 0) return figure_script(workspace, "memory_breakdown_comparison");
    return script_for(workspace,
                      "for _, point in ipairs(runs.points) do\n"
                      "  local memory = point.result and point.result.memory or {}\n"
                      "  for _, part in ipairs(memory.after_step or {}) do\n"
                      "    print(point.id, part.owner, part.bytes)\n"
                      "  end\n"
                      "end");
  }

 protected:
  void draw_controls(const PanelContext&) override {
    const Choice moments[] = {{"at the peak",
                               "The highest moment of the watched step. The run table's measured "
                               "peak is that of the measured steps."},
                              {"after the step", "What is still held when the step is done."}};
    const Choice measures[] = {{"bytes", "Memory of each owner."},
                               {"share", "Each owner's share of the point's own sum."}};
    if (choose("moment", moments, moment_) || choose("measure", measures, measure_)) remake();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    make_memory_chart(context.workspace, shown_details(context, chart),
                      {moment_ == 1, measure_ == 1}, chart);
  }

 private:
  int moment_ = 0, measure_ = 0;
};

}  // namespace

void make_memory_chart(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                       const MemoryChoice& choice, Chart& chart) {
  std::vector<std::string> owners;
  for (const DetailedPoint& point : points) {
    if (!point.detail) continue;
    for (const OwnedBytes& part : parts_of(*point.detail, choice.after_step)) {
      owners.push_back(part.owner);
    }
  }
  owners.push_back(kRest);
  StackAsk ask;
  ask.parts = analysis::owners_in_order(owners);
  ask.value = [&](const PointDetail& detail, const std::string& owner) {
    return bytes_of(detail, owner, choice.after_step);
  };
  ask.bytes = true;
  ask.share = choice.share;
  const bool modelled = workspace.shows_simulated_alone();  // then no step was watched
  const std::string moment = modelled ? (choice.after_step ? "after the step" : "at the peak")
                             : choice.after_step ? "after the watched step"
                                                 : "at the watched peak";
  ask.label = choice.share ? "share of memory " + moment : "memory " + moment;
  if (!add_stacked_bars(workspace, points, ask, chart)) {
    return say_nothing_shown(workspace, points, "No memory by owner in these points",
                             "It is recorded with --profile phases (the default), layers or trace; "
                             "in a script: profile = \"phases\".",
                             chart);
  }
  chart.spec.title =
      fmt::format("Memory by owner {} the {}step", choice.after_step ? "after" : "at the peak of",
                  modelled ? "" : "watched ");
  if (!choice.after_step && !modelled) {
    add_note(chart,
             "The watched step runs after the measured ones, with every allocation noted: its peak "
             "may differ from the table's measured peak.");
  }
  add_baseline_line(workspace, points, choice, chart);
}

const MakePanel make_memory_panel = make_panel<MemoryPanel>;

}  // namespace moonshard::viewer
