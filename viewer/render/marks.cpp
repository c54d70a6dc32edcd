#include "viewer/render/plot_parts.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <implot.h>

#include "viewer/render/plot_text.h"

namespace moonshard::viewer {
namespace {

constexpr int kMaxMissingRows = 12;

// ImPlot identities; names from files never become one.
std::string item_id(size_t series) {
  return fmt::format("##series{}", series);
}

int count_of(const PreparedSeries& series) {
  return static_cast<int>(series.x.size());
}

// A cross and its status; the text is right of the cross, or left of it at the right edge.
void draw_missing_mark(ImVec2 at, const std::string& text, ImU32 color, const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const float em = font_unit(), arm = 0.27f * em, weight = 0.15f * em;
  const float edge = ImPlot::GetPlotPos().x + ImPlot::GetPlotSize().x;
  const ImVec2 size = text_size(text);
  const bool flip = at.x + 0.6f * em + size.x > edge;
  const float text_x = flip ? at.x - 0.55f * em - size.x : at.x + 0.55f * em;
  draw->AddRectFilled(ImVec2(text_x - 2, at.y - size.y / 2),
                      ImVec2(text_x + size.x + 2, at.y + size.y / 2),
                      with_alpha(style.colors().background, 0.8f), 2.0f);
  draw->AddLine(at - ImVec2(arm, arm), at + ImVec2(arm, arm), color, weight);
  draw->AddLine(at - ImVec2(arm, -arm), at + ImVec2(arm, -arm), color, weight);
  draw_text(draw, ImVec2(text_x, at.y - size.y / 2), style.colors().text, text);
}

// What a point without any place is called: its own text and the status word.
std::string corner_text(const PreparedSeries& series, const MissingPoint& point) {
  if (point.source >= series.texts.size() || series.texts[point.source].empty()) {
    return fmt::format("{}: {}", series.name, point.text);
  }
  return fmt::format("{} {}: {}", series.name, series.texts[point.source], point.text);
}

// Crosses on the axis, one row per series that lacks a figure at the same x, each with its status.
// Points that have no place at all are listed in the lower right corner.
void draw_missing_points(const PreparedPanel& panel, const HiddenNames& hidden,
                         const UiStyle& style) {
  const float em = font_unit(), arm = 0.27f * em;
  const ImVec2 min = ImPlot::GetPlotPos(), max = min + ImPlot::GetPlotSize();
  std::map<double, int> rows;
  int corner_rows = 0;
  for (const PreparedSeries& series : panel.series) {
    if (hidden.contains(series.name)) continue;
    const ImU32 color = series_color(series.color, style.theme);
    for (const MissingPoint& point : series.missing) {
      const int row = point.no_place ? corner_rows++ : rows[point.x]++;
      if (row >= kMaxMissingRows) continue;
      const float y = max.y - (static_cast<float>(row) * 1.2f + 0.75f) * em;
      if (point.no_place) {
        draw_missing_mark(ImVec2(max.x - 3 * arm, y), corner_text(series, point), color, style);
        continue;
      }
      if (panel.horizontal) {
        const float place = to_pixels(panel, point.x, panel.y_range.min).y;
        if (place < min.y || place > max.y) continue;
        draw_missing_mark(ImVec2(min.x + 3 * arm, place), point.text, color, style);
        continue;
      }
      const float x = ImPlot::PlotToPixels(point.x, panel.y_range.max).x;
      if (x < min.x - 1 || x > max.x + 1) continue;  // panned out of sight
      draw_missing_mark(ImVec2(std::clamp(x, min.x + 2 * arm, max.x - 2 * arm), y), point.text,
                        color, style);
    }
  }
}

ImPlotSpec series_spec(const PreparedSeries& series, const UiStyle& style) {
  ImPlotSpec spec;
  const ImVec4 color = ImGui::ColorConvertU32ToFloat4(series_color(series.color, style.theme));
  spec.LineColor = spec.FillColor = spec.MarkerFillColor = spec.MarkerLineColor = color;
  spec.LineWeight = 0.13f * font_unit();
  return spec;
}

// ImPlot's markers have ten corners and hard edges; up to a number that costs nothing, draw round
// ones.
constexpr size_t kMaxSmoothMarkers = 5000;

void draw_smooth_markers(const PreparedPanel& panel, const PreparedSeries& series, float radius,
                         const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  for (size_t i = 0; i < series.x.size(); ++i) {
    const ImVec2 at = to_pixels(panel, series.x[i], series.y[i]);
    draw_marker(draw, at, series.color, radius, series_color(series.color, style.theme));
  }
}

void draw_error_bars(const PreparedPanel& panel, const PreparedSeries& series,
                     const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const ImU32 color = with_alpha(series_color(series.color, style.theme), 0.8f);
  const float weight = std::max(1.0f, 0.085f * font_unit()), cap = 0.22f * font_unit();
  for (size_t i = 0; i < series.low.size(); ++i) {
    if (!(series.low[i] < series.high[i])) continue;
    const ImVec2 top = to_pixels(panel, series.x[i], series.high[i]);
    const ImVec2 foot = to_pixels(panel, series.x[i], series.low[i]);
    const ImVec2 across = panel.horizontal ? ImVec2(0, cap) : ImVec2(cap, 0);
    draw->AddLine(top, foot, color, weight);
    for (const ImVec2 end : {top, foot}) draw->AddLine(end - across, end + across, color, weight);
  }
}

// Whiskers and round markers of the series that want them, then the points without a figure.
template <class Wanted>
void draw_points(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style,
                 float radius_em, const Wanted& wanted) {
  ImPlot::PushPlotClipRect();
  for (const PreparedSeries& series : panel.series) {
    if (hidden.contains(series.name) || !wanted(series)) continue;
    draw_error_bars(panel, series, style);
    draw_smooth_markers(panel, series, radius_em * font_unit(), style);
  }
  draw_missing_points(panel, hidden, style);
  ImPlot::PopPlotClipRect();
}

}  // namespace

void draw_lines(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style) {
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const PreparedSeries& series = panel.series[s];
    if (hidden.contains(series.name) || series.x.empty()) continue;
    ImPlot::PlotLine(item_id(s).c_str(), series.x.data(), series.y.data(), count_of(series),
                     series_spec(series, style));
  }
  draw_points(panel, hidden, style, 0.32f, [&](const PreparedSeries&) { return panel.markers; });
}

void draw_scatter(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style) {
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const PreparedSeries& series = panel.series[s];
    if (hidden.contains(series.name) || series.x.empty()) continue;
    ImPlotSpec spec = series_spec(series, style);
    spec.Marker = series_marker(series.color);
    spec.LineWeight = 1;
    spec.MarkerSize = (series.x.size() > kMaxSmoothMarkers ? 0.25f : 0.05f) * font_unit();
    const auto& [across, up] =
        panel.horizontal ? std::tie(series.y, series.x) : std::tie(series.x, series.y);
    ImPlot::PlotScatter(item_id(s).c_str(), across.data(), up.data(), count_of(series), spec);
  }
  const auto few = [](const PreparedSeries& s) { return s.x.size() <= kMaxSmoothMarkers; };
  draw_points(panel, hidden, style, 0.38f, few);
}

void draw_area(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style) {
  const auto feet = stack_feet(panel, hidden);
  std::vector<double> top;
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const PreparedSeries& series = panel.series[s];
    if (hidden.contains(series.name) || series.x.empty()) continue;
    top.resize(series.x.size());
    for (size_t i = 0; i < top.size(); ++i) top[i] = feet[s][i] + series.y[i];
    ImPlotSpec spec = series_spec(series, style);
    spec.LineWeight = 0;
    ImPlot::PlotShaded(item_id(s).c_str(), series.x.data(), feet[s].data(), top.data(),
                       count_of(series), spec);
  }
  if (top.empty()) return;
  // The sum of all parts that are shown.
  ImPlotSpec outline;
  outline.LineColor = ImGui::ColorConvertU32ToFloat4(style.colors().text);
  outline.LineWeight = 0.08f * font_unit();
  ImPlot::PlotLine("##total", panel.series.front().x.data(), top.data(),
                   static_cast<int>(top.size()), outline);
}

}  // namespace moonshard::viewer
