// The heat map panel: any figure over two swept options, by default batch size and accumulation.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/panels/grouping.h"
#include "viewer/script.h"
#include "viewer/widgets/axis_names.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/format.h"

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
    std::vector<std::string> axes = grouping_choices(context.workspace);
    std::erase_if(axes,
                  [](const std::string& name) { return name == kByNothing || name == kByRun; });
    if (axes.size() < 3) return;
    if (choose_figure("##figure", figure_, context.workspace)) remake();
    for (std::string* axis : {&x_axis_, &y_axis_}) {
      if (std::ranges::find(axes, *axis) == axes.end()) *axis = kByItself;
    }
    if (choose_name("x##x", x_axis_, axes)) remake();
    if (choose_name("y##y", y_axis_, axes)) remake();
    if (num_maps_ > 1 && choose_whether({"one scale",
                                         "Equal colours mean equal values in all maps. Without it "
                                         "each map spans its own values."},
                                        one_scale_)) {
      remake();
    }
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Workspace& workspace = context.workspace;
    if (say_no_points(workspace, chart)) return;
    chart.empty_what = "Nothing to lay out";
    chart.empty_next =
        "A heat map needs two swept options, e.g. batch_size and grad_accum: grid = { batch_size = "
        "{...}, grad_accum = {...} }.";
    unit_ = figure_unit(workspace, figure_);
    std::map<size_t, std::vector<PointRef>> runs;
    for (const PointRef ref : workspace.shown()) runs[ref.run].push_back(ref);
    std::vector<Map> maps;
    for (const auto& [run, points] : runs) add_maps_of_run(workspace, run, points, maps);
    drop_single_cells(maps, chart);
    name_maps(workspace, maps);
    constexpr size_t kMaxMaps = 12;
    if (maps.size() > kMaxMaps) {
      add_note(chart, fmt::format("The first {} of {} maps; a filter chooses others.", kMaxMaps,
                                  maps.size()));
    }
    for (size_t m = 0; m < std::min(maps.size(), kMaxMaps); ++m) {
      Map& map = maps[m];
      if (runs.size() > 1) {
        const std::string& run = workspace.run(map.points[0]).name;
        map.title = map.title.empty() ? run : fmt::format("{}: {}", run, map.title);
      }
      add_map(workspace, map, chart);
    }
    num_maps_ = chart.spec.panels.size();
    if (!one_scale_) split_scales(chart.spec);
    const int count = static_cast<int>(chart.spec.panels.size());
    if (count == 0) return;
    chart.spec.columns = std::min(count, 2);
    chart.spec.title = figure_label(workspace, figure_);
    chart.spec.width = count == 1 ? 900 : 1100;
    chart.spec.height = 120 + 340 * ((count + 1) / 2);
  }

 private:
  // One picture: the points of a run that agree in all but two options.
  struct Map {
    std::string title, x_axis, y_axis;
    std::vector<PointRef> points;
    std::vector<std::string> others = {};  ///< what its points share and other maps may not
  };

  void add_maps_of_run(const Workspace& workspace, size_t run, const std::vector<PointRef>& points,
                       std::vector<Map>& maps) const {
    std::vector<size_t> places;
    for (const PointRef ref : points) places.push_back(ref.point);
    const RunData& data = workspace.run(run);
    const std::vector<std::string> axes = telling_axes(data, places);
    const auto [x_axis, y_axis] = choose_axes(workspace, points, axes);
    if (x_axis.empty() || y_axis.empty() || x_axis == y_axis) return;
    // What follows from a model is not told; what follows from a place in the map makes other maps.
    std::vector<std::string> over{x_axis, y_axis};
    std::erase(over, "model");  // its points have batches and lengths of their own
    std::vector<std::string> others = telling_axes(data, places, over);
    std::erase_if(others,
                  [&](const std::string& axis) { return axis == x_axis || axis == y_axis; });
    std::vector<Map> own;
    const std::vector<std::string> titles = words_of_points(data, places, others, false);
    for (size_t i = 0; i < points.size(); ++i) {
      const PointRef ref = points[i];
      const std::string& title = titles[i];
      auto found = std::ranges::find(own, title, &Map::title);
      if (found == own.end()) found = own.insert(own.end(), {title, x_axis, y_axis, {}, others});
      found->points.push_back(ref);
    }
    sort_by_numbers(data, others, own);
    maps.insert(maps.end(), own.begin(), own.end());
  }

  // Beside maps of several cells those of one say nothing.
  static void drop_single_cells(std::vector<Map>& maps, Chart& chart) {
    const auto is_single = [](const Map& map) { return map.points.size() < 2; };
    if (std::ranges::all_of(maps, is_single)) return;
    const auto dropped = std::erase_if(maps, is_single);
    if (dropped > 0)
      add_note(chart, fmt::format("Left out: {} points that no other one differs from in these two "
                                  "options alone.",
                                  dropped));
  }

  // By what tells the maps of a run apart that are left.
  static void name_maps(const Workspace& workspace, std::vector<Map>& maps) {
    for (size_t first = 0; first < maps.size();) {
      const RunData& run = workspace.run(maps[first].points[0]);
      std::vector<size_t> points;
      size_t end = first;
      for (; end < maps.size() && &workspace.run(maps[end].points[0]) == &run; ++end)
        points.push_back(maps[end].points[0].point);
      std::vector<std::string> axes = maps[first].others;
      std::erase_if(axes, [&](const std::string& axis) {
        const std::string word = word_of(run, maps[first], axis);
        return std::all_of(maps.begin() + static_cast<long>(first),
                           maps.begin() + static_cast<long>(end),
                           [&](const Map& map) { return word_of(run, map, axis) == word; });
      });
      const std::vector<std::string> titles = words_of_points(run, points, axes, false);
      for (; first < end; ++first) maps[first].title = titles[first + titles.size() - end];
    }
  }

  // Batch 4 before batch 8, whichever ran first; words as they came.
  static void sort_by_numbers(const RunData& run, const std::vector<std::string>& axes,
                              std::vector<Map>& maps) {
    for (size_t a = axes.size(); a-- > 0;) {
      const auto number = [&](const Map& map) {
        return run.option_number(map.points[0].point, axes[a]);
      };
      if (std::ranges::any_of(maps, [&](const Map& map) { return std::isnan(number(map)); })) {
        std::vector<std::string> words;
        for (const Map& map : maps) place_in(words, word_of(run, map, axes[a]));
        std::ranges::stable_sort(
            maps, {}, [&](const Map& map) { return place_in(words, word_of(run, map, axes[a])); });
      } else {
        std::ranges::stable_sort(maps, {}, number);
      }
    }
  }

  static std::string word_of(const RunData& run, const Map& map, const std::string& axis) {
    return value_text(run, run.options.get(map.points[0].point, axis));
  }

  // By default the engine, or other words, over what leaves the fewest maps, rather a number; the
  // accumulation over the batch size where that leaves no more.
  std::pair<std::string, std::string> choose_axes(const Workspace& workspace,
                                                  const std::vector<PointRef>& points,
                                                  const std::vector<std::string>& axes) const {
    const auto has = [&](const std::string& name) {
      return std::ranges::find(axes, name) != axes.end();
    };
    const auto is_number = [&](const std::string& axis) {
      return workspace.option(points[0], axis).kind == Value::Kind::Number;
    };
    std::string x = x_axis_ == kByItself ? "" : x_axis_, y = y_axis_ == kByItself ? "" : y_axis_;
    const bool free = x.empty() && y.empty();
    if (y.empty() && x != "mode" && has("mode")) y = "mode";
    for (const bool words : {true, false}) {
      for (const std::string& axis : axes) {
        if (y.empty() && axis != x && is_number(axis) != words) y = axis;
      }
    }
    size_t fewest = SIZE_MAX;
    for (const bool numbers : {true, false}) {
      for (const std::string& axis : axes) {
        if (x_axis_ != kByItself || axis == y || is_number(axis) != numbers) continue;
        const size_t count = count_maps(workspace, points, axes, axis, y);
        if (count >= fewest) continue;
        fewest = count;
        x = axis;
      }
    }
    if (free && has("batch_size") && has("grad_accum") &&
        count_maps(workspace, points, axes, "batch_size", "grad_accum") <= fewest) {
      return {"batch_size", "grad_accum"};
    }
    return {x, y};
  }

  static size_t count_maps(const Workspace& workspace, const std::vector<PointRef>& points,
                           std::vector<std::string> axes, const std::string& x,
                           const std::string& y) {
    std::erase_if(axes, [&](const std::string& axis) { return axis == x || axis == y; });
    std::vector<size_t> places;
    for (const PointRef ref : points) places.push_back(ref.point);
    const std::vector<std::string> titles =
        words_of_points(workspace.run(points[0]), places, axes, false);
    return std::set<std::string>(titles.begin(), titles.end()).size();
  }

  static void split_scales(records::PlotSpec& spec) {
    for (records::PlotPanel& panel : spec.panels) {
      for (const records::PlotSeries& series : panel.series) {
        for (const std::optional<double>& y : series.y) {
          if (!y) continue;
          panel.value.min = std::min(panel.value.min.value_or(*y), *y);
          panel.value.max = std::max(panel.value.max.value_or(*y), *y);
        }
      }
    }
  }

  void add_map(const Workspace& workspace, const Map& map, Chart& chart) const {
    const std::vector<PointRef>& points = map.points;
    std::vector<std::string> columns, rows;
    for (const PointRef ref : points) {
      if (columns.size() < kMaxCells) place_in(columns, workspace.option_text(ref, map.x_axis));
      if (rows.size() < kMaxCells) place_in(rows, workspace.option_text(ref, map.y_axis));
    }
    put_in_order(columns);
    put_in_order(rows);
    SeriesList series;
    for (const std::string& row : rows) series[row.empty() ? "-" : row];
    for (const PointRef ref : points) {
      const std::string row = workspace.option_text(ref, map.y_axis);
      const auto column = std::ranges::find(columns, workspace.option_text(ref, map.x_axis));
      if (column == columns.end() || std::ranges::find(rows, row) == rows.end()) continue;
      series[row.empty() ? "-" : row].add(workspace, ref,
                                          static_cast<double>(column - columns.begin()),
                                          figure_of(workspace, ref, figure_) * unit_.factor);
    }
    records::PlotPanel panel;
    panel.kind = records::PlotKind::HeatMap;
    panel.title = map.title;
    panel.x = {axis_title(map.x_axis), axis_unit(map.x_axis), false, columns};
    panel.y = {axis_title(map.y_axis), axis_unit(map.y_axis)};
    panel.value = {figure_label(workspace, figure_), unit_.name};
    series.move_into(chart, std::move(panel));
  }

  std::string figure_ = "tokens_per_s", x_axis_ = kByItself, y_axis_ = kByItself;
  Unit unit_;
  size_t num_maps_ = 0;
  bool one_scale_ = true;
};

}  // namespace

const MakePanel make_heat_map_panel = make_panel<HeatMapPanel>;

}  // namespace moonshard::viewer
