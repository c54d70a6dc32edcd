// Axes of one panel: labels, scales, limits and ticks whose texts keep clear of each other.
#pragma once

#include <imgui.h>
#include <implot.h>

#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// Names instead of numbers stand below the plot (drawn by category_labels).
bool has_named_x(const PreparedPanel& panel);

/// Room left of the plot for names from top to bottom, in a panel of the given width.
float names_width(const PreparedPanel& panel, float width);

/// Sets the axes up between BeginPlot and the first item. y_range is that of the values, with room
/// for text; area the expected size of the plot in pixels.
void setup_axes(const PreparedPanel& panel, const Range& y_range, ImVec2 area, ImPlotCond cond);

}  // namespace moonshard::viewer
