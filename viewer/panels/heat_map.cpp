// The heat map panel: any figure over two swept options, by default batch size and accumulation.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/script.h"
#include "viewer/widgets/axis_names.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxCells = 64;  // each way

// Numbers by size, words as they came.
void put_in_order(std::vector<std::string>& names) {
  const auto number = [](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return end != text.c_str() && *end == '\0' ? value : NAN;
  };
  const bool numbers = std::ranges::none_of(
      names, [&](const std::string& text) { return std::isnan(number(text)); });
  if (!numbers) return;
  std::ranges::stable_sort(names, {}, number);
}

size_t place_in(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  const auto place = static_cast<size_t>(found - names.begin());
  if (place == names.size()) names.push_back(name);
  return place;
}

class HeatMapPanel final : public ChartPanel {
 public:
  HeatMapPanel()
      : ChartPanel({"heat_map", "Heat map", DockPlace::Charts}, ChartSubject::ShownPoints) {}
  std::string script(const Workspace& workspace) const override {
    return workspace.shown().empty() ? "" : figures_script(workspace, {figure_});
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    const std::vector<std::string> axes = context.workspace.keys().axes;
    if (axes.size() < 2) return;
    if (!chosen_) choose_axes(axes);
    if (choose_figure("##figure", figure_, context.workspace)) remake();
    if (choose_name("x##x", x_axis_, axes)) remake();
    if (choose_name("y##y", y_axis_, axes)) remake();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Workspace& workspace = context.workspace;
    if (say_no_points(workspace, chart)) return;
    chart.empty_what = "Nothing to lay out";
    chart.empty_next =
        "A heat map needs two swept options, e.g. batch_size and grad_accum: grid = { batch_size = "
        "{...}, grad_accum = {...} }.";
    if (x_axis_.empty() || y_axis_.empty() || x_axis_ == y_axis_) return;
    unit_ = figure_unit(workspace, figure_);
    // One map per combination of the other axes.
    std::vector<std::string> others;
    std::vector<std::vector<PointRef>> groups;
    for (const PointRef ref : workspace.shown()) {
      const RunData& run = workspace.run(ref);
      std::string rest = axis_words(run, ref.point, {x_axis_, y_axis_});
      if (workspace.snapshot().runs.size() > 1) {
        rest = rest.empty() ? run.name : fmt::format("{}: {}", run.name, rest);
      }
      const size_t place = place_in(others, rest);
      groups.resize(others.size());
      groups[place].push_back(ref);
    }
    constexpr size_t kMaxMaps = 12;
    if (groups.size() > kMaxMaps) {
      chart.spec.note =
          fmt::format("The first {} of {} maps; a filter chooses others.", kMaxMaps, groups.size());
    }
    for (size_t g = 0; g < std::min(groups.size(), kMaxMaps); ++g) {
      add_map(workspace, groups[g], others[g], chart);
    }
    chart.spec.columns = static_cast<int>(std::min<size_t>(chart.spec.panels.size(), 2));
  }

 private:
  void choose_axes(const std::vector<std::string>& axes) {
    chosen_ = true;
    const auto has = [&](const char* name) { return std::ranges::find(axes, name) != axes.end(); };
    x_axis_ = has("batch_size") ? "batch_size" : axes.back();
    y_axis_ = has("grad_accum") ? "grad_accum" : axes.front();
    if (x_axis_ == y_axis_) y_axis_ = axes.front() == x_axis_ ? axes.back() : axes.front();
    remake();
  }

  void add_map(const Workspace& workspace, const std::vector<PointRef>& points,
               const std::string& title, Chart& chart) const {
    std::vector<std::string> columns, rows;
    for (const PointRef ref : points) {
      if (columns.size() < kMaxCells) place_in(columns, workspace.option_text(ref, x_axis_));
      if (rows.size() < kMaxCells) place_in(rows, workspace.option_text(ref, y_axis_));
    }
    put_in_order(columns);
    put_in_order(rows);
    SeriesList series;
    for (const std::string& row : rows) series[row.empty() ? "-" : row];
    for (const PointRef ref : points) {
      const std::string row = workspace.option_text(ref, y_axis_);
      const auto column = std::ranges::find(columns, workspace.option_text(ref, x_axis_));
      if (column == columns.end() || std::ranges::find(rows, row) == rows.end()) continue;
      series[row.empty() ? "-" : row].add(workspace, ref,
                                          static_cast<double>(column - columns.begin()),
                                          figure_of(workspace, ref, figure_) * unit_.factor);
    }
    records::PlotPanel panel;
    panel.kind = records::PlotKind::HeatMap;
    panel.title = title;
    panel.x = {axis_title(x_axis_), axis_unit(x_axis_), false, columns};
    panel.y = {axis_title(y_axis_), axis_unit(y_axis_)};
    panel.value = {figure_label(figure_), unit_.name};
    series.move_into(chart, std::move(panel));
  }

  std::string figure_ = "tokens_per_s", x_axis_, y_axis_;
  Unit unit_;
  bool chosen_ = false;
};

}  // namespace

const MakePanel make_heat_map_panel = make_panel<HeatMapPanel>;

}  // namespace moonshard::viewer
