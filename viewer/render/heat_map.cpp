// Heat maps: a cell per row (series) and column (category) with its value, hatched where a point
// failed, and the bar that explains the colours.
#include <algorithm>
#include <cmath>
#include <utility>

#include <implot.h>

#include "viewer/render/plot_parts.h"
#include "viewer/render/plot_text.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxCellTexts = 2000;
constexpr int kColorSteps = 20;  // each a straight mix of its ends

PixelBox cell_box(double column, double row) {
  return {ImPlot::PlotToPixels(column - 0.5, row - 0.5),
          ImPlot::PlotToPixels(column + 0.5, row + 0.5)};
}

void draw_cell_text(const PixelBox& box, const std::string& text, ImU32 color) {
  const ImVec2 room = box.max - box.min, size = text_size(text);
  if (size.x + 2 > room.x || size.y > room.y) return;
  draw_text_centered(ImPlot::GetPlotDrawList(), (box.min + box.max) * 0.5f, color, text);
}

// The status of a failed point on a patch of background, upright in a narrow cell.
void draw_status(const PixelBox& box, const std::string& text, const PlotColors& colors) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const ImVec2 middle = (box.min + box.max) * 0.5f, room = box.max - box.min;
  ImVec2 half = text_size(text) * 0.5f + ImVec2(3, 1);
  const bool level = 2 * half.x <= room.x && 2 * half.y <= room.y;
  if (!level) std::swap(half.x, half.y);
  if (2 * half.x > room.x || 2 * half.y > room.y) return;
  draw->AddRectFilled(middle - half, middle + half, colors.background);
  if (level) {
    draw_text_centered(draw, middle, colors.text, text);
  } else {
    draw_text_turned(draw, middle, kUpright, 0.5f, colors.text, text);
  }
}

}  // namespace

void draw_heat_map(const PreparedPanel& panel, const UiStyle& style) {
  ImPlot::PushPlotClipRect();
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const PlotColors& colors = style.colors();
  const std::vector<double> values = all_values(panel);
  const int decimals = common_decimals(values);
  const bool texts = values.size() <= kMaxCellTexts;
  const ImVec2 gap(1, 1);
  for (size_t row = 0; row < panel.series.size(); ++row) {
    const PreparedSeries& series = panel.series[row];
    for (size_t i = 0; i < series.x.size(); ++i) {
      const PixelBox box = cell_box(std::floor(series.x[i]), static_cast<double>(row));
      const ImU32 color =
          heat_color((series.y[i] - panel.value_range.min) / panel.value_range.size());
      draw->AddRectFilled(box.min + gap, box.max - gap, color);
      if (texts)
        draw_cell_text(box, format_decimals(series.y[i], decimals), readable_text_on(color));
    }
    for (const MissingPoint& point : series.missing) {
      const PixelBox box = cell_box(std::floor(point.x), static_cast<double>(row));
      draw_hatch(draw, box.min + gap * 2, box.max - gap * 2, with_alpha(colors.muted_text, 0.8f));
      draw_status(box, point.text, colors);
    }
  }
  ImPlot::PopPlotClipRect();
}

float color_bar_width(const PreparedPanel& panel) {
  if (panel.kind != records::PlotKind::HeatMap) return 0;
  const float em = ImGui::GetFontSize();
  const float numbers = std::max(text_size(format_number(panel.value_range.min)).x,
                                 text_size(format_number(panel.value_range.max)).x);
  return 2.4f * em + std::min(numbers, 6 * em) + (panel.value_label.empty() ? 0 : 1.5f * em);
}

void draw_color_bar(const PreparedPanel& panel, ImVec2 min, float height, const UiStyle& style) {
  ImDrawList* draw = ImGui::GetWindowDrawList();
  const PlotColors& colors = style.colors();
  const float em = ImGui::GetFontSize();
  const ImVec2 top_left = min + ImVec2(0.9f * em, 0), size(0.9f * em, height);
  if (height < 2 * em) return;
  for (int i = 0; i < kColorSteps; ++i) {
    const float upper = height * (1 - static_cast<float>(i + 1) / kColorSteps);
    const float lower = height * (1 - static_cast<float>(i) / kColorSteps);
    const ImU32 dark = heat_color((i + 1.0) / kColorSteps);
    const ImU32 light = heat_color(static_cast<double>(i) / kColorSteps);
    draw->AddRectFilledMultiColor(top_left + ImVec2(0, upper), top_left + ImVec2(size.x, lower),
                                  dark, dark, light, light);
  }
  draw->AddRect(top_left, top_left + size, colors.border);
  const int num_ticks = height > 9 * em ? 5 : height > 4.5f * em ? 3 : 2;
  std::vector<double> ticks;
  for (int i = 0; i < num_ticks; ++i) {
    ticks.push_back(panel.value_range.min + panel.value_range.size() * i / (num_ticks - 1));
  }
  const int decimals = common_decimals(ticks);
  float widest = 0;
  for (int i = 0; i < num_ticks; ++i) {
    const float y = top_left.y + height * (1 - static_cast<float>(i) / (num_ticks - 1));
    const ImVec2 tick(top_left.x + size.x, y);
    draw->AddLine(tick, tick + ImVec2(0.3f * em, 0), colors.border);
    const std::string text = format_decimals(ticks[static_cast<size_t>(i)], decimals);
    const ImVec2 extent = text_size(text);
    widest = std::max(widest, extent.x);
    // The end texts stay beside the bar instead of hanging over its ends.
    const float text_y = std::clamp(y - extent.y / 2, top_left.y, top_left.y + height - extent.y);
    draw_text(draw, ImVec2(tick.x + 0.45f * em, text_y), colors.text, text);
  }
  if (panel.value_label.empty()) return;
  const float x = top_left.x + size.x + 0.45f * em + widest + 0.9f * em;
  draw_text_turned(draw, ImVec2(x, top_left.y + height / 2), kUpright, 0.5f, colors.text,
                   fit_label(panel.value_label, height));
}

}  // namespace moonshard::viewer
