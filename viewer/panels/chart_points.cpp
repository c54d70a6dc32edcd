#include "viewer/panels/chart_points.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/widgets/axis_names.h"
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
struct OverheadFigure {
  const char *key, *label;
};
constexpr std::array<OverheadFigure, 4> kOverheads = {
    {{"overhead:time_ratio", "time against the baseline"},
     {"overhead:memory_bytes", "memory above the baseline"},
     {"overhead:memory_percent", "memory above the baseline in %"},
     {"overhead:throughput_ratio", "throughput against the baseline"}}};

std::string figure_label(const std::string& key) {
  for (const OverheadFigure& overhead : kOverheads) {
    if (key == overhead.key) return overhead.label;
  }
  return metric_format(key).title;
}

}  // namespace

std::vector<Figure> all_figures(const Workspace& workspace) {
  const std::vector<std::string>& order = workspace.metric_keys();
  const auto present = [&](const char* key) {
    return std::find(order.begin(), order.end(), key) != order.end();
  };
  std::vector<Figure> figures;
  const auto add = [&](const std::string& key) { figures.push_back({key, figure_label(key)}); };
  for (const char* key : kUsual) {
    if (present(key)) add(key);
  }
  if (workspace.baseline().kind != Baseline::Kind::None) {
    for (const OverheadFigure& overhead : kOverheads) add(overhead.key);
  }
  for (const std::string& key : order) {
    const bool usual = std::find(kUsual.begin(), kUsual.end(), key) != kUsual.end();
    if (!usual && figures.size() < 200) add(key);
  }
  return figures;
}

double figure_of(const Workspace& workspace, PointRef ref, const std::string& key) {
  if (!key.starts_with(kOverheadPrefix)) return workspace.run(ref).metric(ref.point, key);
  const Overhead& overhead = workspace.overhead(ref);
  if (key == "overhead:time_ratio") return overhead.time_ratio;
  if (key == "overhead:memory_bytes") return overhead.memory_bytes;
  if (key == "overhead:memory_percent") return overhead.memory_percent;
  return overhead.throughput_ratio;
}

ShownUnit figure_unit(const std::string& key, double largest) {
  if (key.ends_with("_ratio")) return {"x", 1};
  if (key.ends_with("_bytes")) {
    const Unit unit = memory_unit(largest);
    return {unit.name, unit.factor};
  }
  if (key.ends_with("_ms")) {
    const Unit unit = time_unit(largest);
    return {unit.name, unit.factor};
  }
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
  bool changed = false;
  float width = 0;
  for (const std::string& other : names) {
    width = std::max(width, ImGui::CalcTextSize(other.c_str()).x);
  }
  const float em = ImGui::GetFontSize();
  begin_choice(label, std::clamp(width + 3 * em, 6 * em, 16 * em));
  if (ImGui::BeginCombo(label, clean_text(name, 128).c_str())) {
    for (const std::string& other : names) {
      if (ImGui::Selectable(literal_label(other, other).c_str(), other == name)) {
        changed = other != name;
        name = other;
      }
    }
    ImGui::EndCombo();
  }
  const std::string_view meaning = definition_of(name);
  if (!meaning.empty() && ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
    show_tooltip(meaning);
  }
  return changed;
}

bool choose_figure(const char* label, std::string& key, const Workspace& workspace) {
  const std::vector<Figure> figures = all_figures(workspace);
  bool changed = false;
  if (!figures.empty() && std::none_of(figures.begin(), figures.end(),
                                       [&](const Figure& figure) { return figure.key == key; })) {
    key = figures.front().key;
    changed = true;
  }
  begin_choice(label, 14 * ImGui::GetFontSize());
  if (ImGui::BeginCombo(label, clean_text(figure_label(key), 128).c_str(),
                        ImGuiComboFlags_HeightLarge)) {
    for (const Figure& figure : figures) {
      if (ImGui::Selectable(literal_label(figure.label, figure.key).c_str(), figure.key == key)) {
        changed = true;
        key = figure.key;
      }
      const std::string_view meaning = definition_of(figure.key);
      if (!meaning.empty() && ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
        show_tooltip(meaning);
      }
    }
    ImGui::EndCombo();
  }
  const std::string_view meaning = definition_of(key);
  if (!meaning.empty() && ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
    show_tooltip(meaning);
  }
  return changed;
}

std::string option_text(const Workspace& workspace, PointRef ref, const std::string& key) {
  const RunData& run = workspace.run(ref);
  const std::optional<size_t> place = run.options.find(key);
  return place ? value_text(run, run.options.at(ref.point, *place)) : "";
}

std::string series_name(const Workspace& workspace, PointRef ref, const std::string& without) {
  const RunData& run = workspace.run(ref);
  std::string name = axis_words(run, ref.point, {without});
  if (name.empty()) {
    const std::string mode = option_text(workspace, ref, "mode");
    name = mode.empty() ? run.name : mode;
  }
  if (workspace.snapshot().runs.size() > 1) name = fmt::format("{}: {}", run.name, name);
  return name;
}

void SeriesBuilder::add(const Workspace& workspace, PointRef ref, double x, double y) {
  const PointHead& head = workspace.head(ref);
  series.x.push_back(x);
  const bool good = head.status == "ok" && std::isfinite(y);
  series.y.push_back(good ? std::optional<double>(y) : std::nullopt);
  // An ok point without this figure is not a failure: its text says what is missing.
  series.status.push_back(head.status == "ok" && !good ? "no figure" : head.status);
  series.labels.push_back(workspace.point_name(ref));
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
  return std::any_of(list_.begin(), list_.end(), [](const SeriesBuilder& builder) {
    return std::any_of(builder.series.y.begin(), builder.series.y.end(),
                       [](const std::optional<double>& y) { return y.has_value(); });
  });
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
