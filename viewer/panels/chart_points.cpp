#include "viewer/panels/chart_points.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/grouping.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/definitions.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr std::string_view kOverheadPrefix = "overhead:";
constexpr std::array<const char*, 8> kUsual = {
    "median_time_ms",          "peak_memory_bytes", "tokens_per_s", "comm_exposed_ms",
    "gpu_utilization_percent", "mfu_percent",       "final_loss",   "clip_fraction"};

// Of "overhead:time_ratio" and the like; null for a metric.
const OverheadFigure* overhead_figure(std::string_view key) {
  if (!key.starts_with(kOverheadPrefix)) return nullptr;
  return find_overhead_figure(key.substr(kOverheadPrefix.size()));
}

bool has_two_places(const SeriesBuilder& builder) {
  const records::PlotSeries& series = builder.series;
  std::optional<double> first;
  for (size_t i = 0; i < series.y.size(); ++i) {
    if (!series.y[i]) continue;
    if (first && *first != series.x[i]) return true;
    first = series.x[i];
  }
  return false;
}

// Figures that the open folders have, the usual ones first.
std::vector<std::string> all_figures(const Workspace& workspace) {
  const std::vector<std::string>& order = workspace.metric_keys();
  const auto present = [&](const char* key) {
    return std::ranges::find(order, key) != order.end();
  };
  std::vector<std::string> figures;
  std::copy_if(kUsual.begin(), kUsual.end(), std::back_inserter(figures), present);
  if (workspace.baseline().kind != Baseline::Kind::None) {
    for (const OverheadFigure& overhead : kOverheadFigures)
      figures.push_back(std::string(kOverheadPrefix) + overhead.key);
  }
  for (const std::string& key : order) {
    const bool usual = std::ranges::find(kUsual, key) != kUsual.end();
    if (!usual && figures.size() < 200) figures.push_back(key);
  }
  return figures;
}

}  // namespace

std::string figure_label(const std::string& key) {
  const OverheadFigure* overhead = overhead_figure(key);
  return overhead ? overhead->label : metric_title(key);
}

std::string figure_label(const Workspace& workspace, const std::string& key) {
  const bool modelled = key == "peak_memory_bytes" && workspace.shows_simulated_alone();
  return modelled ? "modelled peak memory" : figure_label(key);
}

double figure_of(const Workspace& workspace, PointRef ref, const std::string& key) {
  const OverheadFigure* overhead = overhead_figure(key);
  return overhead ? workspace.overhead(ref).*overhead->value
                  : workspace.run(ref).metric(ref.point, key);
}

Unit figure_unit(const Workspace& workspace, const std::string& key) {
  if (key.ends_with("_ratio")) return {"x", 1};
  double largest = 0, least = INFINITY;
  for (const PointRef ref : workspace.shown()) {
    const double value = std::abs(figure_of(workspace, ref, key));
    if (!std::isfinite(value)) continue;
    largest = std::max(largest, value);
    least = std::min(least, value);
  }
  if (key.ends_with("_bytes")) return memory_unit(largest);
  if (key.ends_with("_ms")) return time_unit(largest);
  if (key.ends_with("_per_s") && are_millions(least, largest)) return {"million", 1e-6};
  const MetricFormat format = metric_format(key);
  return {format.unit, format.factor};
}

void begin_choice(const char* label, float width) {
  // A panel narrower than the box gets a narrower box.
  width = std::min(width, ImGui::GetContentRegionAvail().x);
  const float text = ImGui::CalcTextSize(label, nullptr, true).x;
  continue_line(width + (text > 0 ? ImGui::GetStyle().ItemInnerSpacing.x + text : 0));
  ImGui::SetNextItemWidth(width);
}

bool choose_name(const char* label, std::string& name, const std::vector<std::string>& names) {
  float width = 0;
  for (const std::string& other : names) {
    width = std::max(width, ImGui::CalcTextSize(other.c_str()).x);
  }
  const float em = ImGui::GetFontSize();
  begin_choice(label, std::clamp(width + 3 * em, 6 * em, 16 * em));
  const bool changed = pick_name(label, name, names);
  explain_item(definition_of(name));
  return changed;
}

bool choose_figure(const char* label, std::string& key, const Workspace& workspace) {
  const std::vector<std::string> figures = all_figures(workspace);
  const bool known = std::ranges::find(figures, key) != figures.end();
  if (!known && !figures.empty()) key = figures.front();
  begin_choice(label, 14 * ImGui::GetFontSize());
  const bool changed = pick_name(label, key, figures, [&](const std::string& figure) {
    return figure_label(workspace, figure);
  });
  explain_item(definition_of(key));
  return changed || (!known && !figures.empty());
}

std::vector<std::string> series_names(const Workspace& workspace, const std::vector<PointRef>& refs,
                                      const std::string& over, const std::string& facet) {
  std::vector<std::string> names =
      labels_without(workspace, refs, {over, facet}, facet != kByRun, true, over);
  for (size_t i = 0; i < refs.size(); ++i) {
    if (names[i].empty()) names[i] = workspace.option_text(refs[i], "mode");
    if (names[i].empty()) names[i] = workspace.run(refs[i]).name;
  }
  return names;
}

void note_left_out(size_t left_out, Chart& chart) {
  if (left_out == 0) return;
  add_note(chart, fmt::format("The first {} facets; {} points more: a filter chooses others.",
                              kMaxFacets, left_out));
}

void SeriesBuilder::add(const Workspace& workspace, PointRef ref, double x, double y) {
  const PointHead& head = workspace.head(ref);
  series.x.push_back(x);
  const bool good = head.status == "ok" && std::isfinite(y);
  series.y.push_back(good ? std::optional<double>(y) : std::nullopt);
  // An ok point without this figure is not a failure: its text says what is missing.
  series.status.push_back(head.status == "ok" && !good ? "no figure" : head.status);
  series.labels.push_back(workspace.short_name(ref));
  refs.push_back(ref);
}

SeriesBuilder& SeriesList::operator[](const std::string& name) {
  for (SeriesBuilder& builder : list_) {
    if (builder.series.name == name) return builder;
  }
  list_.emplace_back();
  list_.back().series.name = name;
  return list_.back();
}

bool SeriesList::any_figure() const {
  return std::ranges::any_of(list_, [](const SeriesBuilder& builder) {
    return std::ranges::any_of(builder.series.y, &std::optional<double>::has_value);
  });
}

bool SeriesList::grows() const {
  return std::ranges::any_of(list_, has_two_places);
}

size_t SeriesList::drop_single_places() {
  size_t points = 0;
  std::erase_if(list_, [&](const SeriesBuilder& builder) {
    const std::vector<double>& x = builder.series.x;
    const bool drops = std::ranges::adjacent_find(x, std::ranges::not_equal_to()) == x.end();
    points += drops ? x.size() : 0;
    return drops;
  });
  return points;
}

size_t SeriesList::keep_first(size_t count) {
  size_t points = 0;
  while (list_.size() > count) {
    points += list_.back().refs.size();
    list_.pop_back();
  }
  return points;
}

void SeriesList::move_into(Chart& chart, records::PlotPanel panel) {
  std::vector<std::vector<PointRef>> refs;
  for (SeriesBuilder& builder : list_) {
    panel.series.push_back(std::move(builder.series));
    refs.push_back(std::move(builder.refs));
  }
  list_.clear();
  chart.spec.panels.push_back(std::move(panel));
  chart.refs.push_back(std::move(refs));
}

}  // namespace moonshard::viewer
