#include "viewer/render/marks.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <implot.h>

#include "viewer/render/legend.h"
#include "viewer/render/plot_text.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr float kUpright = 1.5707963f;
constexpr size_t kMaxValueTexts = 400;  // more are never readable, and cost time
constexpr float kValueFont = 0.86f;     // size of values over bars, in em of the plot's text

// ImPlot identities; names from files never become one.
std::string item_id(size_t series) {
  return fmt::format("##series{}", series);
}

int count_of(const PreparedSeries& series) {
  return static_cast<int>(series.x.size());
}

float font_unit() {
  return ImGui::GetFontSize();
}

void push_value_font() {
  ImGui::PushFont(nullptr, ImGui::GetStyle().FontSizeBase * kValueFont);
}

size_t num_points(const PreparedPanel& panel) {
  size_t count = 0;
  for (const PreparedSeries& series : panel.series) count += series.x.size();
  return count;
}

int value_decimals(const PreparedPanel& panel) {
  std::vector<double> values;
  for (const PreparedSeries& series : panel.series) {
    values.insert(values.end(), series.y.begin(), series.y.end());
  }
  return common_decimals(values);
}

void draw_values(const PreparedPanel& panel, ValueText values, const std::set<size_t>& hidden,
                 const UiStyle& style) {
  push_value_font();
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const ImU32 color = plot_colors(style.theme).text;
  const float gap = 0.25f * font_unit();
  const int decimals = value_decimals(panel);
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s)) continue;
    const PreparedSeries& series = panel.series[s];
    for (size_t i = 0; i < series.x.size(); ++i) {
      const ImVec2 top = ImPlot::PlotToPixels(series.x[i], series.y[i]);
      const std::string text = format_decimals(series.y[i], decimals);
      const float side = series.y[i] < 0 ? 1.0f : -1.0f;  // below a negative bar
      if (values == ValueText::Level) {
        const float center = top.y + side * (gap + ImGui::GetTextLineHeight() / 2);
        draw_text_centered(draw, ImVec2(top.x, center), color, text);
      } else {
        draw_text_turned(draw, ImVec2(top.x, top.y + side * gap), kUpright, side < 0 ? 0.0f : 1.0f,
                         color, text);
      }
    }
  }
  ImGui::PopFont();
}

void draw_hatch(ImDrawList* draw, ImVec2 min, ImVec2 max, ImU32 color) {
  draw->PushClipRect(min, max, true);
  const float height = max.y - min.y;
  const float step = std::max(0.45f * font_unit(), (max.x - min.x + height) / 200);
  for (float x = min.x - height; x < max.x; x += step) {
    draw->AddLine(ImVec2(x, max.y), ImVec2(x + height, min.y), with_alpha(color, 0.55f),
                  0.07f * font_unit());
  }
  draw->PopClipRect();
  draw->AddRect(min, max, color, 0, 0, 0.08f * font_unit());
}

// A hatched stub where the bar would stand, with its status word over or inside it.
void draw_missing_bar(const MissingPoint& point, double bar_width, ImU32 color,
                      const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const PlotColors& colors = plot_colors(style.theme);
  const float em = font_unit();
  const float foot = ImPlot::GetPlotPos().y + ImPlot::GetPlotSize().y;
  const float left = ImPlot::PlotToPixels(point.x - bar_width / 2, 0).x + 1;
  const float right = std::max(ImPlot::PlotToPixels(point.x + bar_width / 2, 0).x - 1, left + 2);
  const ImVec2 text = text_size(point.text);
  const bool level = text.x <= right - left + 0.6f * em;
  const float height = level ? 1.3f * em : 1.6f * em;
  draw_hatch(draw, ImVec2(left, foot - height), ImVec2(right, foot), color);
  if (level) {
    const ImVec2 center((left + right) / 2, foot - height - 0.7f * em);
    draw_text_centered(draw, center, colors.text, point.text);
  } else if (right - left >= 0.55f * em) {
    draw_text_turned(draw, ImVec2((left + right) / 2, foot - height - 0.35f * em), kUpright, 0.0f,
                     colors.text, point.text);
  }
}

// Crosses on the axis, one row per series that lacks a figure at the same x, each with its word.
void draw_missing_points(const PreparedPanel& panel, const std::set<size_t>& hidden,
                         const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const float em = font_unit(), arm = 0.27f * em;
  const float foot = ImPlot::GetPlotPos().y + ImPlot::GetPlotSize().y;
  const float left = ImPlot::GetPlotPos().x;
  const float edge = ImPlot::GetPlotPos().x + ImPlot::GetPlotSize().x;
  const ImU32 backdrop = with_alpha(plot_colors(style.theme).background, 0.8f);
  std::map<double, int> rows;
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s)) continue;
    const ImU32 color = series_color(s, style.theme);
    for (const MissingPoint& point : panel.series[s].missing) {
      const int row = rows[point.x]++;
      if (row >= 12) continue;
      const float x = ImPlot::PlotToPixels(point.x, panel.y_range.max).x;
      if (x < left - 1 || x > edge + 1) continue;  // panned out of sight
      const ImVec2 at(std::clamp(x, left + 2 * arm, edge - 2 * arm),
                      foot - (static_cast<float>(row) * 1.2f + 0.75f) * em);
      const ImVec2 text = text_size(point.text);
      // The word stands right of the cross, or left of it at the right edge.
      const bool flip = at.x + 0.6f * em + text.x > edge;
      const float text_x = flip ? at.x - 0.55f * em - text.x : at.x + 0.55f * em;
      draw->AddRectFilled(ImVec2(text_x - 2, at.y - text.y / 2),
                          ImVec2(text_x + text.x + 2, at.y + text.y / 2), backdrop, 2.0f);
      const float weight = 0.15f * em;
      draw->AddLine(at - ImVec2(arm, arm), at + ImVec2(arm, arm), color, weight);
      draw->AddLine(at - ImVec2(arm, -arm), at + ImVec2(arm, -arm), color, weight);
      draw->AddText(ImVec2(std::round(text_x), std::round(at.y - text.y / 2)), color,
                    point.text.data(), point.text.data() + point.text.size());
    }
  }
}

ImPlotSpec series_spec(size_t series, const UiStyle& style) {
  ImPlotSpec spec;
  const ImVec4 color = ImGui::ColorConvertU32ToFloat4(series_color(series, style.theme));
  spec.LineColor = spec.FillColor = spec.MarkerFillColor = spec.MarkerLineColor = color;
  spec.LineWeight = 0.13f * font_unit();
  return spec;
}

// ImPlot's markers have ten corners and hard edges; up to a number that costs nothing, draw round
// ones.
constexpr size_t kMaxSmoothMarkers = 5000;

void draw_smooth_markers(const PreparedSeries& series, size_t index, float radius,
                         const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  for (size_t i = 0; i < series.x.size(); ++i) {
    const ImVec2 at = ImPlot::PlotToPixels(series.x[i], series.y[i]);
    draw_marker(draw, at, index, radius, series_color(index, style.theme));
  }
}

}  // namespace

ValueText choose_value_text(const PreparedPanel& panel, float bar_pixels, float& above) {
  above = 0.8f * font_unit();
  if (num_points(panel) == 0 || num_points(panel) > kMaxValueTexts) return ValueText::None;
  push_value_font();
  const int decimals = value_decimals(panel);
  float widest = 0;
  for (const PreparedSeries& series : panel.series) {
    for (const double y : series.y) {
      widest = std::max(widest, text_size(format_decimals(y, decimals)).x);
    }
  }
  const float em = font_unit();
  ImGui::PopFont();
  if (widest + 0.25f * em <= bar_pixels) {
    above = 2.0f * em;
    return ValueText::Level;
  }
  if (bar_pixels >= 1.0f * em) {
    above = widest + 0.9f * em;
    return ValueText::Turned;
  }
  return ValueText::None;
}

void draw_bars(const PreparedPanel& panel, ValueText values, const std::set<size_t>& hidden,
               const UiStyle& style) {
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s) || panel.series[s].x.empty()) continue;
    const PreparedSeries& series = panel.series[s];
    ImPlotSpec spec = series_spec(s, style);
    spec.LineWeight = 0;
    ImPlot::PlotBars(item_id(s).c_str(), series.x.data(), series.y.data(), count_of(series),
                     panel.bar_width * 0.94, spec);
  }
  ImPlot::PushPlotClipRect();
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s)) continue;
    for (const MissingPoint& point : panel.series[s].missing) {
      draw_missing_bar(point, panel.bar_width, series_color(s, style.theme), style);
    }
  }
  if (values != ValueText::None) draw_values(panel, values, hidden, style);
  ImPlot::PopPlotClipRect();
}

void draw_lines(const PreparedPanel& panel, const std::set<size_t>& hidden, const UiStyle& style) {
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s) || panel.series[s].x.empty()) continue;
    const PreparedSeries& series = panel.series[s];
    ImPlot::PlotLine(item_id(s).c_str(), series.x.data(), series.y.data(), count_of(series),
                     series_spec(s, style));
  }
  ImPlot::PushPlotClipRect();
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s) || !panel.markers) continue;
    draw_smooth_markers(panel.series[s], s, 0.32f * font_unit(), style);
  }
  draw_missing_points(panel, hidden, style);
  ImPlot::PopPlotClipRect();
}

void draw_scatter(const PreparedPanel& panel, const std::set<size_t>& hidden,
                  const UiStyle& style) {
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s) || panel.series[s].x.empty()) continue;
    const PreparedSeries& series = panel.series[s];
    ImPlotSpec spec = series_spec(s, style);
    spec.Marker = series_marker(s);
    spec.LineWeight = 1;
    spec.MarkerSize = (series.x.size() > kMaxSmoothMarkers ? 0.25f : 0.05f) * font_unit();
    ImPlot::PlotScatter(item_id(s).c_str(), series.x.data(), series.y.data(), count_of(series),
                        spec);
  }
  ImPlot::PushPlotClipRect();
  for (size_t s = 0; s < panel.series.size(); ++s) {
    if (hidden.contains(s) || panel.series[s].x.size() > kMaxSmoothMarkers) continue;
    draw_smooth_markers(panel.series[s], s, 0.38f * font_unit(), style);
  }
  draw_missing_points(panel, hidden, style);
  ImPlot::PopPlotClipRect();
}

}  // namespace moonshard::viewer
