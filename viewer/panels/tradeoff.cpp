// The trade-off panel: two figures of every shown point against each other, by default memory
// against time. Hovering names the run, a click selects it everywhere.
#include <cmath>

#include <fmt/format.h>
#include <imgui.h>

#include "runtime/analysis/tradeoff.h"
#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/panels/make_panels.h"
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
  std::string_view name() const override { return "tradeoff"; }
  const char* title() const override { return "Trade-off"; }
  const char* purpose() const override {
    return "Two figures of every point against each other, by default memory against time; the "
           "text under the mouse marks points that no other one beats in both.";
  }
  std::string script(const Workspace& workspace) const override {
    return workspace.shown().empty() ? "" : figures_script(workspace, {x_key_, y_key_});
  }

 protected:
  bool follows_selection() const override { return false; }

  void draw_controls(const PanelContext& context) override {
    if (context.workspace.shown().empty()) return;
    if (choose_figure("over##y", y_key_, context.workspace)) remake();
    if (choose_figure("##x", x_key_, context.workspace)) remake();
    if (choose_whether({"log", "Both axes logarithmic."}, log_)) remake();
  }

  Chart make_chart(const PanelContext& context) override {
    const Workspace& workspace = context.workspace;
    Chart chart;
    if (say_no_points(workspace, chart)) return chart;
    chart.empty_what = "No points to compare";
    chart.empty_next =
        "Points with both figures appear here; look at the filter, or choose others.";
    double largest_x = 0, largest_y = 0;
    std::vector<analysis::Cost> costs;
    for (const PointRef ref : workspace.shown()) {
      const double x = figure_of(workspace, ref, x_key_), y = figure_of(workspace, ref, y_key_);
      costs.push_back(workspace.head(ref).status == "ok" ? analysis::Cost{x, y} : analysis::Cost());
      if (std::isfinite(x)) largest_x = std::max(largest_x, std::abs(x));
      if (std::isfinite(y)) largest_y = std::max(largest_y, std::abs(y));
    }
    const ShownUnit x_unit = figure_unit(x_key_, largest_x),
                    y_unit = figure_unit(y_key_, largest_y);
    const std::vector<bool> efficient = analysis::efficient(costs);
    const bool are_costs = less_is_better(x_key_) && less_is_better(y_key_);
    SeriesList series;
    for (size_t i = 0; i < workspace.shown().size(); ++i) {
      const PointRef ref = workspace.shown()[i];
      const double x = figure_of(workspace, ref, x_key_) * x_unit.factor;
      const double y = figure_of(workspace, ref, y_key_) * y_unit.factor;
      std::string group = option_text(workspace, ref, "mode");
      if (group.empty()) group = workspace.run(ref).name;
      if (workspace.snapshot().runs.size() > 1 && series.size() < kMaxTradeoffSeries) {
        group = fmt::format("{}: {}", workspace.run(ref).name, group);
      }
      SeriesBuilder& marks = series[series.size() < kMaxTradeoffSeries ? group : "others"];
      marks.add(workspace, ref, std::isfinite(x) ? x : NAN, std::isfinite(x) ? y : NAN);
      if (are_costs && efficient[i]) marks.series.labels.back() += " (efficient)";
    }
    if (!series.any_figure()) return chart;
    records::PlotPanel panel;
    panel.kind = records::PlotKind::Scatter;
    panel.x = {label_of(workspace, x_key_), x_unit.name, log_};
    panel.y = {label_of(workspace, y_key_), y_unit.name, log_};
    chart.spec.title = fmt::format("{} against {}", panel.y.label, panel.x.label);
    series.move_into(chart, std::move(panel));
    return chart;
  }

 private:
  static std::string label_of(const Workspace& workspace, const std::string& key) {
    for (const Figure& figure : all_figures(workspace)) {
      if (figure.key == key) return figure.label;
    }
    return key;
  }

  std::string x_key_ = "median_time_ms", y_key_ = "peak_memory_bytes";
  bool log_ = false;
};

}  // namespace

std::unique_ptr<Panel> make_tradeoff_panel() {
  return std::make_unique<TradeoffPanel>();
}

}  // namespace moonshard::viewer
