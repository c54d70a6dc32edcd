// The layers panel: the layers whose per-sample norms take longest in the selected point, beside
// those of its baseline.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <fmt/format.h>

#include "viewer/panels/detail_charts.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/definitions.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxRows = 256;

struct Row {
  std::string name, kind;
  double ms = 0;
  size_t count = 1;
};

// Longest first; by kind all layers of one kind are one row.
std::vector<Row> rows_of(const PointDetail& detail, bool by_kind) {
  std::vector<Row> rows;
  std::map<std::string, size_t> places;
  for (const LayerTime& layer : detail.layers) {
    if (!std::isfinite(layer.norm_ms)) continue;
    const std::string& name = by_kind ? layer.kind : layer.layer;
    const auto [place, added] = places.try_emplace(name, rows.size());
    if (added) {
      rows.push_back({name, layer.kind, layer.norm_ms, 1});
    } else {
      rows[place->second].ms += layer.norm_ms;
      ++rows[place->second].count;
    }
  }
  std::ranges::sort(rows, [](const Row& a, const Row& b) {
    return a.ms != b.ms ? a.ms > b.ms : a.name < b.name;
  });
  return rows;
}

// Without the part before the first dot that all names begin with ("model.").
void drop_common_start(std::vector<std::string>& names) {
  const size_t dot = names.empty() ? std::string::npos : names[0].find('.');
  if (dot == std::string::npos) return;
  const std::string start = names[0].substr(0, dot + 1);
  const auto begins = [&](const std::string& name) { return name.starts_with(start); };
  if (!std::ranges::all_of(names, begins)) return;
  for (std::string& name : names) name.erase(0, start.size());
}

std::string row_label(const Row& row, bool by_kind) {
  if (by_kind) return fmt::format("{} layer{}", row.count, row.count == 1 ? "" : "s");
  return row.kind;
}

class LayersPanel final : public ChartPanel {
 public:
  LayersPanel() : ChartPanel({"layers", "Layers", DockPlace::Detail, "layer_norm_times"}) {}

 protected:
  void draw_controls(const PanelContext& context) override {
    if (!context.workspace.selected_point()) return;
    const Choice numbers[] = {{"top 10", ""}, {"20", ""}, {"40", ""}, {"all", "Up to 256."}};
    bool changed = choose("top", numbers, top_);
    changed |= choose_whether({"by kind", definition_of("kind")}, by_kind_);
    changed |= choose_whether(
        {"with its baseline",
         "The same layers of the point's baseline, where that has them; without a baseline those "
         "of the first pinned point."},
        with_baseline_);
    if (changed) remake();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    constexpr size_t kTops[] = {10, 20, 40, kMaxRows};
    const std::vector<NamedDetail> points = selected_and_baseline(context, with_baseline_, chart);
    if (!points.empty()) {
      make_layers_chart(points, {kTops[std::clamp(top_, 0, 3)], by_kind_}, chart);
    }
  }

 private:
  int top_ = 1;
  bool by_kind_ = false, with_baseline_ = true;
};

}  // namespace

void make_layers_chart(const std::vector<NamedDetail>& points, const LayersChoice& choice,
                       Chart& chart) {
  const std::vector<Row> rows =
      points.empty() ? std::vector<Row>() : rows_of(*points[0].detail, choice.by_kind);
  if (rows.empty()) {
    chart.empty_what = "This point has no times of layers";
    chart.empty_next =
        "Engines that find norms of samples record them with --profile layers or trace; in a "
        "script: profile = \"layers\".";
    return;
  }
  const size_t count = std::min({rows.size(), choice.top, kMaxRows});
  const Unit unit = time_unit(rows[0].ms);
  records::PlotPanel panel;
  panel.kind = records::PlotKind::Bars;
  panel.horizontal = true;
  panel.y = {"norm time per step", unit.name};
  double covered = 0, total = 0;
  for (const Row& row : rows) total += row.ms;
  records::PlotSeries series;
  series.name = points[0].name;
  series.color = static_cast<int>(points[0].color);
  for (size_t i = 0; i < count; ++i) {
    panel.x.categories.push_back(rows[i].name);
    series.x.push_back(static_cast<double>(i));
    series.y.push_back(rows[i].ms * unit.factor);
    series.labels.push_back(row_label(rows[i], choice.by_kind));
    covered += rows[i].ms;
  }
  chart.refs.push_back({{}});  // all bars are the selected point's: nothing to select or frame
  panel.series.push_back(series);
  const std::vector<Row> others =
      points.size() > 1 ? rows_of(*points[1].detail, choice.by_kind) : std::vector<Row>();
  if (!others.empty()) {
    series.name = points[1].name;
    series.color = static_cast<int>(points[1].color == points[0].color ? 6 : points[1].color);
    std::map<std::string, const Row*> by_name;
    for (const Row& row : others) by_name[row.name] = &row;
    for (size_t i = 0; i < count; ++i) {
      const auto found = by_name.find(rows[i].name);
      const bool known = found != by_name.end();
      series.y[i] = known ? figure(found->second->ms * unit.factor) : std::nullopt;
      series.labels[i] = known ? row_label(*found->second, choice.by_kind) : "";
      series.status.push_back(known ? "ok" : "not there");
    }
    chart.refs.back().emplace_back(count, points[1].ref);
    panel.series.push_back(std::move(series));
  }
  if (!choice.by_kind) drop_common_start(panel.x.categories);
  chart.spec.panels.push_back(std::move(panel));
  chart.spec.title = "Per-sample norms by layer";
  if (count < rows.size()) {
    chart.spec.note = fmt::format("The {} slowest of {}; together {:.0f} % of all norm time.",
                                  count, rows.size(), total > 0 ? 100 * covered / total : 100.0);
  }
  chart.spec.width = 900;
  chart.spec.height =
      std::clamp(150 + 24 * static_cast<int>(count * chart.refs[0].size()), 320, 4000);
}

const MakePanel make_layers_panel = make_panel<LayersPanel>;

}  // namespace moonshard::viewer
