// The legend: its own rows above the plot, so that it never covers data. Own code instead of
// ImPlot's, because names from files are shown literally and long lists must wrap.
#pragma once

#include <imgui.h>

#include "viewer/context.h"
#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// Marker of the n-th colour, as ImPlotMarker; shapes change together with colours.
int series_marker(size_t index);

/// The same shape with smooth edges.
void draw_marker(ImDrawList* draw, ImVec2 center, size_t index, float radius, ImU32 color);

/// Height of the legend when wrapped to width; 0 when there is nothing to distinguish. It takes no
/// more than a third of a figure of the given height, but one row at least.
float legend_height(const Legend& legend, float width, float figure_height);

/// Draws it centred over the figure's width at top_left. When interactive, a click on an entry puts
/// the name into hidden or takes it out.
void draw_legend(const Legend& legend, ImVec2 top_left, ImVec2 figure, const UiStyle& style,
                 bool interactive, HiddenNames& hidden);

}  // namespace moonshard::viewer
