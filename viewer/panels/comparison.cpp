// The comparison panel: figures of all shown points as bars, or over a swept number as lines, as
// they are or against the baseline that the user picks.
#include <algorithm>
#include <cmath>
#include <utility>

#include <imgui.h>

#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/script.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxBars = 120;
constexpr size_t kMaxComparedSeries = 60;

class ComparisonPanel final : public ChartPanel {
 public:
  ComparisonPanel()
      : ChartPanel({"comparison", "Comparison", DockPlace::Charts}, ChartSubject::ShownPoints) {}
  std::string script(const Workspace& workspace) const override {
    return workspace.shown().empty() ? "" : figures_script(workspace, figure_keys());
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    Workspace& workspace = context.workspace;
    if (workspace.shown().empty()) return;
    draw_baseline(workspace);
    begin_choice("##what", 9.5f * ImGui::GetFontSize());
    if (ImGui::Combo("##what", &what_, "overhead\0time, memory\0one figure\0")) remake();
    if (what_ == kOneFigure && choose_figure("##figure", figure_, workspace)) remake();
    std::vector<std::string> axes = workspace.numeric_axes();
    if (std::ranges::find(axes, over_) == axes.end()) over_ = kBars;
    axes.insert(axes.begin(), kBars);
    if (axes.size() > 1 && choose_name("##over", over_, axes)) remake();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Workspace& workspace = context.workspace;
    if (say_no_points(workspace, chart)) return;
    const bool compares = what_ == kOverhead;
    chart.empty_what = compares ? "No point has a baseline" : "No points to compare";
    chart.empty_next = compares ? "Pick one above, or right click a row of the run table: Baseline."
                                : "None of the shown points has this figure: choose another.";
    for (const std::string& key : figure_keys()) add_panel(workspace, key, chart);
    if (chart.spec.panels.empty()) return;
    chart.spec.title = compares ? "Cost against " + workspace.baseline_text() : "";
    chart.spec.columns = static_cast<int>(chart.spec.panels.size());
    chart.spec.width = 520 * chart.spec.columns + 100;
    if (over_ == kBars && workspace.shown().size() > kMaxBars) {
      chart.spec.note = first_points_note(kMaxBars, workspace.shown().size());
    }
  }

 private:
  static constexpr int kOverhead = 0, kPlain = 1, kOneFigure = 2;
  static constexpr const char* kBars = "bars";

  std::vector<std::string> figure_keys() const {
    if (what_ == kPlain) return {"median_time_ms", "peak_memory_bytes"};
    if (what_ == kOneFigure) return {figure_};
    return {"overhead:time_ratio", "overhead:memory_percent", "overhead:memory_bytes"};
  }

  void draw_baseline(Workspace& workspace) {
    const std::vector<const RunData*> runs = workspace.runs();
    const std::string now = workspace.baseline_text();
    begin_choice("baseline", 12 * ImGui::GetFontSize());
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
    const Unit unit = figure_unit(workspace, key);
    records::PlotPanel panel;
    panel.y.unit = unit.name;
    panel.y.label = figure_label(key);
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

  // What gives bars their colours: the engines, or the words that the baseline is one of (zero2,
  // zero3). Numbers are no series: they stand on an axis.
  static std::string series_axis(const Workspace& workspace) {
    const std::vector<std::string>& axes = workspace.keys().axes;
    const std::vector<std::string>& numeric = workspace.numeric_axes();
    const auto holds = [](const std::vector<std::string>& list, const std::string& axis) {
      return std::ranges::find(list, axis) != list.end();
    };
    const std::string& compared = workspace.baseline().axis;
    if (holds(axes, "mode")) return "mode";
    return holds(axes, compared) && !holds(numeric, compared) ? compared : "";
  }

  // The other axes name the groups of bars.
  void add_bars(const Workspace& workspace, const std::string& key, double factor,
                records::PlotPanel& panel, SeriesList& series) const {
    panel.kind = records::PlotKind::Bars;
    const std::string colored = series_axis(workspace);
    std::vector<PointRef> points = workspace.shown();
    points.resize(std::min(points.size(), kMaxBars));
    panel.x = point_axis(workspace, points, colored);
    const std::vector<std::string> labels = std::exchange(panel.x.categories, {});
    for (size_t i = 0; i < points.size(); ++i) {
      std::vector<std::string>& names = panel.x.categories;
      const auto found = std::ranges::find(names, labels[i]);
      const auto place = static_cast<double>(found - names.begin());
      if (found == names.end()) names.push_back(labels[i]);
      const std::string name = colored.empty() ? "" : workspace.option_text(points[i], colored);
      series[name].add(workspace, points[i], place, figure_of(workspace, points[i], key) * factor);
    }
  }

  void add_lines(const Workspace& workspace, const std::string& key, double factor,
                 records::PlotPanel& panel, SeriesList& series) const {
    panel.kind = records::PlotKind::Lines;
    panel.x = {axis_title(over_), axis_unit(over_), true};
    std::vector<PointRef> points = workspace.shown();
    const auto place = [&](PointRef ref) {
      return workspace.run(ref).option_number(ref.point, over_);
    };
    std::ranges::stable_sort(points, {}, place);
    for (const PointRef ref : points) {
      const double x = place(ref);
      const std::string name = series_name(workspace, ref, over_);
      if (!std::isfinite(x)) continue;
      series[series.size() < kMaxComparedSeries ? name : "others"].add(
          workspace, ref, x, figure_of(workspace, ref, key) * factor);
    }
  }

  int what_ = kOverhead;
  std::string figure_ = "tokens_per_s", over_ = kBars;
};

}  // namespace

const MakePanel make_comparison_panel = make_panel<ComparisonPanel>;

}  // namespace moonshard::viewer
