// The phases panel: what the step of each shown point spends its time on.
#include <string>

#include <fmt/format.h>

#include "runtime/analysis/rows.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/definitions.h"

namespace moonshard::viewer {
namespace {

// In the order of PhaseStatistic.
struct StatisticChoice {
  double Statistics::*value;
  const char* word;  // in the note
};
constexpr StatisticChoice kStatistics[] = {{&Statistics::median, "Medians"},
                                           {&Statistics::mean, "Means"},
                                           {&Statistics::min, "The shortest of each phase"}};

double phase_ms(const PointDetail& detail, const std::string& name, PhaseStatistic statistic) {
  for (const PhaseTime& phase : detail.time.phases_ms) {
    if (phase.name == name) return phase.value.*kStatistics[static_cast<size_t>(statistic)].value;
  }
  return NAN;
}

class PhasesPanel final : public ChartPanel {
 public:
  PhasesPanel()
      : ChartPanel({"phases", "Phases", DockPlace::Detail, "phases"}, ChartSubject::ShownPoints) {}

 protected:
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

  void make_chart(const PanelContext& context, Chart& chart) override {
    make_phases_chart(context.workspace, shown_details(context, chart),
                      {static_cast<PhaseStatistic>(statistic_), measure_ == 1}, chart);
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
  if (workspace.shows_simulated_alone()) return;
  add_note(chart,
           fmt::format("{} over the measured steps, phase by phase: their sum is not exactly "
                       "the step's own.",
                       kStatistics[static_cast<size_t>(choice.statistic)].word));
}

const MakePanel make_phases_panel = make_panel<PhasesPanel>;

}  // namespace moonshard::viewer
