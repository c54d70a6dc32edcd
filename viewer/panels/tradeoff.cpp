// The trade-off panel: two figures of every shown point against each other, by default memory
// against time. Hovering names the run, a click selects it everywhere.
#include <cmath>

#include <fmt/format.h>

#include "runtime/analysis/claims.h"
#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/script.h"
#include "viewer/widgets/choice.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxTradeoffSeries = 200;  // the renderer's own limit is 256

// Times and memory: of two such figures it can be said which points no other one beats.
bool less_is_better(std::string_view key) {
  return key.ends_with("_ms") || key.ends_with("_bytes");
}

class TradeoffPanel final : public ChartPanel {
 public:
  TradeoffPanel()
      : ChartPanel({"tradeoff", "Trade-off", DockPlace::Charts}, ChartSubject::ShownPoints) {}
  std::string script(const Workspace& workspace) const override {
    return workspace.shown().empty() ? "" : figures_script(workspace, {x_key_, y_key_});
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    if (context.workspace.shown().empty()) return;
    if (choose_figure("over##y", y_key_, context.workspace)) remake();
    if (choose_figure("##x", x_key_, context.workspace)) remake();
    if (choose_whether({"log", "Both axes logarithmic."}, log_)) remake();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Workspace& workspace = context.workspace;
    if (say_no_points(workspace, chart)) return;
    chart.empty_what = "No points to compare";
    chart.empty_next =
        "Points with both figures appear here; look at the filter, or choose others.";
    std::vector<analysis::Cost> costs;
    for (const PointRef ref : workspace.shown()) {
      const double x = figure_of(workspace, ref, x_key_), y = figure_of(workspace, ref, y_key_);
      costs.push_back(workspace.head(ref).status == "ok" ? analysis::Cost{x, y} : analysis::Cost());
    }
    const Unit x_unit = figure_unit(workspace, x_key_), y_unit = figure_unit(workspace, y_key_);
    const std::vector<bool> efficient = analysis::efficient(costs);
    const bool are_costs = less_is_better(x_key_) && less_is_better(y_key_);
    SeriesList series;
    for (size_t i = 0; i < workspace.shown().size(); ++i) {
      const PointRef ref = workspace.shown()[i];
      const double x = figure_of(workspace, ref, x_key_) * x_unit.factor;
      const double y = figure_of(workspace, ref, y_key_) * y_unit.factor;
      std::string group = workspace.option_text(ref, "mode");
      if (group.empty()) group = workspace.run(ref).name;
      if (workspace.snapshot().runs.size() > 1 && series.size() < kMaxTradeoffSeries) {
        group = fmt::format("{}: {}", workspace.run(ref).name, group);
      }
      SeriesBuilder& marks = series[series.size() < kMaxTradeoffSeries ? group : "others"];
      marks.add(workspace, ref, std::isfinite(x) ? x : NAN, std::isfinite(x) ? y : NAN);
      if (are_costs && efficient[i]) marks.series.labels.back() += " (efficient)";
    }
    if (!series.any_figure()) return;
    records::PlotPanel panel;
    panel.kind = records::PlotKind::Scatter;
    panel.x = {figure_label(x_key_), x_unit.name, log_};
    panel.y = {figure_label(y_key_), y_unit.name, log_};
    chart.spec.title = fmt::format("{} against {}", panel.y.label, panel.x.label);
    series.move_into(chart, std::move(panel));
  }

 private:
  std::string x_key_ = "median_time_ms", y_key_ = "peak_memory_bytes";
  bool log_ = false;
};

}  // namespace

const MakePanel make_tradeoff_panel = make_panel<TradeoffPanel>;

}  // namespace moonshard::viewer
