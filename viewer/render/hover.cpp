#include "viewer/render/hover.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <implot.h>

#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

struct Hit {
  size_t series = 0, source = 0;
  double x = 0;
  std::string value;
};

void show_line(const std::string& text) {
  ImGui::TextUnformatted(text.data(), text.data() + text.size());
}

// Over bars: the bar whose column the mouse is in.
std::optional<Hit> find_bar(const PreparedPanel& panel, const std::set<size_t>& hidden) {
  const double mouse_x = ImPlot::GetPlotMousePos().x;
  const double half = panel.bar_width / 2;
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s)) continue;
    const PreparedSeries& series = panel.series[s];
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (std::abs(series.x[i] - mouse_x) > half) continue;
      return Hit{s, series.source[i], std::round(series.x[i]), format_number(series.y[i])};
    }
    for (const MissingPoint& point : series.missing) {
      if (std::abs(point.x - mouse_x) > half) continue;
      return Hit{s, point.source, std::round(point.x), point.text};
    }
  }
  return std::nullopt;
}

// Over lines and points: the nearest point within reach.
std::optional<Hit> find_point(const PreparedPanel& panel, const std::set<size_t>& hidden) {
  const ImVec2 mouse = ImGui::GetMousePos();
  const float foot = ImPlot::GetPlotPos().y + ImPlot::GetPlotSize().y;
  const float reach = ImGui::GetFontSize();
  float nearest = reach * reach;
  std::optional<Hit> hit;
  const auto offer = [&](ImVec2 at, size_t s, size_t source, double x, double y,
                         const std::string* text) {
    const float distance =
        (at.x - mouse.x) * (at.x - mouse.x) + (at.y - mouse.y) * (at.y - mouse.y);
    if (distance >= nearest) return;
    nearest = distance;
    hit = Hit{s, source, x, text ? *text : format_number(y)};
  };
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s)) continue;
    const PreparedSeries& series = panel.series[s];
    for (size_t i = 0; i < series.x.size(); ++i) {
      const ImVec2 at = ImPlot::PlotToPixels(series.x[i], series.y[i]);
      offer(at, s, series.source[i], series.x[i], series.y[i], nullptr);
    }
    for (const MissingPoint& point : series.missing) {
      const float x = ImPlot::PlotToPixels(point.x, panel.y_range.max).x;
      offer(ImVec2(x, foot - 0.75f * reach), s, point.source, point.x, 0, &point.text);
    }
  }
  return hit;
}

std::string x_text(const PreparedPanel& panel, double x) {
  if (panel.categories.empty()) return format_tick(x);
  const auto index = static_cast<size_t>(std::max(0.0, std::round(x)));
  return index < panel.categories.size() ? panel.categories[index] : "";
}

}  // namespace

void draw_hover_text(const PreparedPanel& panel, const std::set<size_t>& hidden,
                     const UiStyle& style) {
  if (!ImPlot::IsPlotHovered()) return;
  const bool bars = panel.kind == records::PlotKind::Bars;
  const std::optional<Hit> hit = bars ? find_bar(panel, hidden) : find_point(panel, hidden);
  if (!hit || !ImGui::BeginTooltip()) return;
  const PreparedSeries& series = panel.series[hit->series];
  ImGui::PushStyleColor(ImGuiCol_Text, series_color(hit->series, style.theme));
  show_line(series.name.empty() ? "(no name)" : series.name);
  ImGui::PopStyleColor();
  show_line(
      fmt::format("{}: {}", panel.x_label.empty() ? "x" : panel.x_label, x_text(panel, hit->x)));
  show_line(fmt::format("{}: {}", panel.y_label.empty() ? "y" : panel.y_label, hit->value));
  if (hit->source < series.labels.size()) show_line(series.labels[hit->source]);
  ImGui::EndTooltip();
}

}  // namespace moonshard::viewer
