// The trade-off panel: two figures of every shown point against each other, by default memory
// against time. Hovering names the run, a click selects it everywhere.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runtime/analysis/claims.h"
#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/panels/grouping.h"
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
    if (choose_grouping(context.workspace, &color_, &facets_)) remake();
    if (choose_whether({"log", "Both axes logarithmic."}, log_)) remake();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Workspace& workspace = context.workspace;
    if (say_no_points(workspace, chart)) return;
    chart.empty_what = "No points to compare";
    chart.empty_next =
        "Points with both figures appear here; look at the filter, or choose others.";
    const Unit x_unit = figure_unit(workspace, x_key_), y_unit = figure_unit(workspace, y_key_);
    size_t left_out = 0;
    const std::vector<Facet> facets =
        facets_of(workspace, workspace.shown(), facets_, kMaxFacets, left_out);
    for (const Facet& facet : facets) {
      SeriesList series = marks_of(workspace, facet.points, x_unit, y_unit);
      if (!series.any_figure()) continue;
      records::PlotPanel panel;
      panel.kind = records::PlotKind::Scatter;
      if (facets.size() > 1) panel.title = facet.title;
      panel.x = {figure_label(workspace, x_key_), x_unit.name, log_};
      panel.y = {figure_label(workspace, y_key_), y_unit.name, log_};
      series.move_into(chart, std::move(panel));
    }
    if (chart.spec.panels.empty()) return;
    chart.spec.title = fmt::format("{} against {}", figure_label(workspace, y_key_),
                                   figure_label(workspace, x_key_));
    const int count = static_cast<int>(chart.spec.panels.size());
    chart.spec.columns = std::min(count, 3);
    chart.spec.width = count == 1 ? 900 : 440 * chart.spec.columns;
    chart.spec.height = count == 1 ? 520 : 120 + 360 * ((count + 2) / 3);
    note_left_out(left_out, chart);
  }

 private:
  SeriesList marks_of(const Workspace& workspace, const std::vector<PointRef>& points,
                      const Unit& x_unit, const Unit& y_unit) const {
    std::vector<analysis::Cost> costs;
    for (const PointRef ref : points) {
      const double x = figure_of(workspace, ref, x_key_), y = figure_of(workspace, ref, y_key_);
      costs.push_back(workspace.head(ref).status == "ok" ? analysis::Cost{x, y} : analysis::Cost());
    }
    const std::vector<bool> efficient = analysis::efficient(costs);
    const bool are_costs = less_is_better(x_key_) && less_is_better(y_key_);
    const std::vector<std::string> groups = color_points(workspace, points, color_).names;
    SeriesList series;
    for (size_t i = 0; i < points.size(); ++i) {
      const double x = figure_of(workspace, points[i], x_key_) * x_unit.factor;
      const double y = figure_of(workspace, points[i], y_key_) * y_unit.factor;
      SeriesBuilder& marks = series[series.size() < kMaxTradeoffSeries ? groups[i] : "others"];
      marks.add(workspace, points[i], std::isfinite(x) ? x : NAN, std::isfinite(x) ? y : NAN);
      if (are_costs && efficient[i]) marks.series.labels.back() += " (efficient)";
    }
    return series;
  }

  std::string x_key_ = "median_time_ms", y_key_ = "peak_memory_bytes";
  std::string color_ = kByItself, facets_ = kByItself;
  bool log_ = false;
};

}  // namespace

const MakePanel make_tradeoff_panel = make_panel<TradeoffPanel>;

}  // namespace moonshard::viewer
