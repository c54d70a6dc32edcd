// What stands for data inside a plot: bars, stacks, areas, lines, points, cells, and the marks of
// points without a figure. All draw_ calls belong between ImPlot::BeginPlot and EndPlot, and leave
// hidden series out.
#pragma once

#include <algorithm>

#include <imgui.h>

#include "viewer/context.h"
#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// A rectangle in pixels, made of any two opposite corners.
struct PixelBox {
  ImVec2 min, max;
  PixelBox(ImVec2 a, ImVec2 b)
      : min(std::min(a.x, b.x), std::min(a.y, b.y)), max(std::max(a.x, b.x), std::max(a.y, b.y)) {}
};

/// How values stand on top of bars.
enum class ValueText { None, Level, Turned };

/// Chooses by the room one bar has (pixels across); above receives the pixels needed beyond the
/// highest bar.
ValueText choose_value_text(const PreparedPanel& panel, float bar_pixels, float& above);

/// Bars and stacked bars, upright or lying.
void draw_bars(const PreparedPanel& panel, ValueText values, const HiddenNames& hidden,
               const UiStyle& style);
void draw_lines(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style);
void draw_scatter(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style);
void draw_area(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style);

/// Cells with their values; colours span panel.value_range.
void draw_heat_map(const PreparedPanel& panel, const UiStyle& style);
/// Room right of a heat map for the bar that explains its colours.
float color_bar_width(const PreparedPanel& panel);
/// Draws that bar, from min over its width to the given height.
void draw_color_bar(const PreparedPanel& panel, ImVec2 min, float height, const UiStyle& style);

/// Slanted lines with a border: the place of something that is not there.
void draw_hatch(ImDrawList* draw, ImVec2 min, ImVec2 max, ImU32 color);

}  // namespace moonshard::viewer
