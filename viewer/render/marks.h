// What stands for data inside a plot: bars, lines, points, and the marks of points without a
// figure. All calls belong between ImPlot::BeginPlot and EndPlot.
#pragma once

#include <set>

#include "viewer/context.h"
#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// How values stand on top of bars.
enum class ValueText { None, Level, Turned };

/// Chooses by the room one bar has (pixels); above receives the pixels needed over the highest bar.
ValueText choose_value_text(const PreparedPanel& panel, float bar_pixels, float& above);

/// Draws all series but the hidden ones.
void draw_bars(const PreparedPanel& panel, ValueText values, const std::set<size_t>& hidden,
               const UiStyle& style);
void draw_lines(const PreparedPanel& panel, const std::set<size_t>& hidden, const UiStyle& style);
void draw_scatter(const PreparedPanel& panel, const std::set<size_t>& hidden, const UiStyle& style);

}  // namespace moonshard::viewer
