// The phases panel: what the step of each shown point spends its time on.
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "runtime/analysis/rows.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/panels/make_panels.h"
#include "viewer/script.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/definitions.h"

namespace moonshard::viewer {
namespace {

double statistic_of(const Statistics& ms, PhaseStatistic statistic) {
  switch (statistic) {
    case PhaseStatistic::Mean:
      return ms.mean;
    case PhaseStatistic::Min:
      return ms.min;
    default:
      return ms.median;
  }
}

double phase_ms(const PointDetail& detail, const std::string& name, PhaseStatistic statistic) {
  for (const PhaseTime& phase : detail.time.phases_ms) {
    if (phase.name == name) return statistic_of(phase.value, statistic);
  }
  return NAN;
}

class PhasesPanel final : public ChartPanel {
 public:
  std::string_view name() const override { return "phases"; }
  const char* title() const override { return "Phases"; }
  DockPlace place() const override { return DockPlace::Detail; }
  const char* purpose() const override {
    return "The step of each shown point, stacked by phase: forward, backward, clipping, noise.";
  }
  std::string script(const Workspace& workspace) const override {
    return figure_script(workspace, "phases");
  }

 protected:
  bool follows_selection() const override { return false; }

  void draw_controls(const PanelContext&) override {
    const Choice statistics[] = {{"median", definition_of("median_time_ms")},
                                 {"mean", definition_of("avg_time_ms")},
                                 {"min", definition_of("min_time_ms")}};
    const Choice measures[] = {{"time", definition_of("phases_ms")},
                               {"share", "Each phase's share of the sum of all phases."}};
    if (choose("statistic", statistics, statistic_) || choose("measure", measures, measure_)) {
      remake();
    }
  }

  Chart make_chart(const PanelContext& context) override {
    Chart chart;
    const std::vector<DetailedPoint> points = shown_details(context, chart);
    make_phases_chart(context.workspace, points,
                      {static_cast<PhaseStatistic>(statistic_), measure_ == 1}, chart);
    return chart;
  }

 private:
  int statistic_ = 0, measure_ = 0;
};

}  // namespace

void make_phases_chart(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                       const PhasesChoice& choice, Chart& chart) {
  std::vector<std::string> names;
  for (const DetailedPoint& point : points) {
    if (!point.detail) continue;
    for (const PhaseTime& phase : point.detail->time.phases_ms) names.push_back(phase.name);
  }
  StackAsk ask;
  ask.parts = analysis::phases_in_order(names);
  ask.value = [&](const PointDetail& detail, const std::string& name) {
    return phase_ms(detail, name, choice.statistic);
  };
  ask.share = choice.share;
  ask.label = choice.share ? "share of the step" : "step time";
  if (!add_stacked_bars(workspace, points, ask, chart)) {
    return say_nothing_shown(workspace, points, "No times of phases in these points",
                             "They are recorded with --profile phases (the default), layers or "
                             "trace; in a script: profile = \"phases\".",
                             chart);
  }
  chart.spec.title = "Phases of a step";
  const char* word = choice.statistic == PhaseStatistic::Median ? "Medians"
                     : choice.statistic == PhaseStatistic::Mean ? "Means"
                                                                : "The shortest of each phase";
  const std::string note = fmt::format("{} over the measured steps.", word);
  chart.spec.note = chart.spec.note.empty() ? note : note + " " + chart.spec.note;
}

std::unique_ptr<Panel> make_phases_panel() {
  return std::make_unique<PhasesPanel>();
}

}  // namespace moonshard::viewer
