// The comparison panel: figures of all shown points as bars, or over a swept number as lines, as
// they are or against the baseline that the user picks.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/chart_points.h"
#include "viewer/panels/make_panels.h"
#include "viewer/script.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxBars = 120;
constexpr size_t kMaxSeries = 60;

class ComparisonPanel final : public ChartPanel {
 public:
  std::string_view name() const override { return "comparison"; }
  const char* title() const override { return "Comparison"; }
  const char* purpose() const override {
    return "Memory and time of the shown points, absolute or against a baseline you pick.";
  }
  std::string script(const Workspace& workspace) const override {
    return figure_script(workspace, what_ == kOverhead ? "overhead_analysis" : "time_comparison");
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    Workspace& workspace = context.workspace;
    if (workspace.shown().empty()) return;
    draw_baseline(workspace);
    ImGui::SameLine();
    ImGui::SetNextItemWidth(9.5f * ImGui::GetFontSize());
    if (ImGui::Combo("##what", &what_, "overhead\0time, memory\0one figure\0")) remake();
    if (what_ == kOneFigure) {
      ImGui::SameLine();
      if (choose_figure("##figure", figure_, workspace)) remake();
    }
    ImGui::SameLine();
    std::vector<std::string> axes = numeric_axes(workspace);
    if (std::find(axes.begin(), axes.end(), over_) == axes.end()) over_ = kBars;
    axes.insert(axes.begin(), kBars);
    if (axes.size() > 1 && choose_name("##over", over_, axes)) remake();
  }

  Chart make_chart(const PanelContext& context) override {
    const Workspace& workspace = context.workspace;
    Chart chart;
    const bool compares = what_ == kOverhead;
    chart.empty_what = compares ? "No point has a baseline" : "No points to compare";
    chart.empty_next = compares ? "Pick one above, or right click a row of the run table: Baseline."
                                : "Look at the filter of the run table.";
    std::vector<std::string> keys;
    if (compares)
      keys = {"overhead:time_ratio", "overhead:memory_percent", "overhead:memory_bytes"};
    if (what_ == kPlain) keys = {"median_time_ms", "peak_memory_bytes"};
    if (what_ == kOneFigure) keys = {figure_};
    for (const std::string& key : keys) add_panel(workspace, key, chart);
    if (chart.spec.panels.empty()) return chart;
    chart.spec.title = compares ? "Cost against " + workspace.baseline_text() : "";
    chart.spec.columns = static_cast<int>(chart.spec.panels.size());
    chart.spec.width = 520 * chart.spec.columns + 100;
    if (over_ == kBars && workspace.shown().size() > kMaxBars) {
      chart.spec.note = fmt::format("The first {} of {} points; a filter chooses others.", kMaxBars,
                                    workspace.shown().size());
    }
    return chart;
  }

 private:
  static constexpr int kOverhead = 0, kPlain = 1, kOneFigure = 2;
  static constexpr const char* kBars = "bars";

  void draw_baseline(Workspace& workspace) {
    std::vector<const RunData*> runs;
    for (const LoadedRun& loaded : workspace.snapshot().runs) runs.push_back(loaded.data.get());
    const std::string now = workspace.baseline_text();
    ImGui::SetNextItemWidth(12 * ImGui::GetFontSize());
    if (!ImGui::BeginCombo("baseline", now.c_str())) return;
    if (ImGui::Selectable("no baseline", workspace.baseline().kind == Baseline::Kind::None)) {
      workspace.set_baseline({});
    }
    for (const Baseline& choice : baseline_choices(runs)) {
      const std::string text = describe(choice, runs);
      if (ImGui::Selectable(literal_label(text, text).c_str(), choice == workspace.baseline())) {
        workspace.set_baseline(choice);
      }
    }
    if (const std::optional<PointRef> ref = workspace.selected_point()) {
      ImGui::Separator();
      if (ImGui::Selectable("the selected point, for all")) {
        workspace.set_baseline(
            {Baseline::Kind::Point, workspace.run(*ref).path, workspace.head(*ref).id, "", ""});
      }
    }
    ImGui::EndCombo();
  }

  void add_panel(const Workspace& workspace, const std::string& key, Chart& chart) const {
    double largest = 0;
    for (const PointRef ref : workspace.shown()) {
      const double value = figure_of(workspace, ref, key);
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    const ShownUnit unit = figure_unit(key, largest);
    records::PlotPanel panel;
    panel.y.unit = unit.name;
    for (const Figure& figure : all_figures(workspace)) {
      if (figure.key == key) panel.y.label = figure.label;
    }
    if (key == "overhead:memory_percent") {
      panel.y.label = "memory above the baseline";
      panel.y.unit = "%";
    }
    SeriesList series;
    over_ == kBars ? add_bars(workspace, key, unit.factor, panel, series)
                   : add_lines(workspace, key, unit.factor, panel, series);
    if (!series.any_figure()) return;
    if (key == "overhead:time_ratio") panel.references.push_back({"baseline", "", {}, {1.0}});
    series.move_into(chart, std::move(panel));
  }

  // Series are modes where there are several, so that each has its colour; the other axes name the
  // groups of bars.
  void add_bars(const Workspace& workspace, const std::string& key, double factor,
                records::PlotPanel& panel, SeriesList& series) const {
    panel.kind = records::PlotKind::Bars;
    const std::vector<std::string> axes = all_axes(workspace);
    const bool modes = std::find(axes.begin(), axes.end(), "mode") != axes.end();
    const size_t count = std::min(workspace.shown().size(), kMaxBars);
    for (size_t i = 0; i < count; ++i) {
      const PointRef ref = workspace.shown()[i];
      std::string category =
          modes ? series_name(workspace, ref, "mode") : workspace.point_name(ref);
      if (modes && category == option_text(workspace, ref, "mode")) category = "";
      std::vector<std::string>& names = panel.x.categories;
      const auto found = std::find(names.begin(), names.end(), category);
      const auto place = static_cast<double>(found - names.begin());
      if (found == names.end()) names.push_back(category);
      const std::string mode = modes ? option_text(workspace, ref, "mode") : "";
      series[mode].add(workspace, ref, place, figure_of(workspace, ref, key) * factor);
    }
  }

  void add_lines(const Workspace& workspace, const std::string& key, double factor,
                 records::PlotPanel& panel, SeriesList& series) const {
    panel.kind = records::PlotKind::Lines;
    panel.x.label = over_;
    panel.x.log_scale = true;
    std::vector<PointRef> points = workspace.shown();
    std::stable_sort(points.begin(), points.end(), [&](PointRef a, PointRef b) {
      return workspace.run(a).option_number(a.point, over_) <
             workspace.run(b).option_number(b.point, over_);
    });
    for (const PointRef ref : points) {
      const double x = workspace.run(ref).option_number(ref.point, over_);
      const std::string name = series_name(workspace, ref, over_);
      if (!std::isfinite(x)) continue;
      series[series.size() < kMaxSeries ? name : "others"].add(
          workspace, ref, x, figure_of(workspace, ref, key) * factor);
    }
  }

  int what_ = kOverhead;
  std::string figure_ = "tokens_per_s", over_ = kBars;
};

}  // namespace

std::unique_ptr<Panel> make_comparison_panel() {
  return std::make_unique<ComparisonPanel>();
}

}  // namespace moonshard::viewer
