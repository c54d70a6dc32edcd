// The tooltip over a plot: which point is under the mouse and what it says.
#pragma once

#include "viewer/context.h"
#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// Shows the tooltip of the nearest point, if the mouse is over the current ImPlot plot and near
/// one.
void draw_hover_text(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style);

}  // namespace moonshard::viewer
