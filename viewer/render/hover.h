// The tooltip over a plot: which point is under the mouse and what it says.
#pragma once

#include <optional>
#include <vector>

#include "viewer/context.h"
#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// Shows the tooltip of the nearest point, if the mouse is over the current ImPlot plot and near
/// one, and says which it is.
std::optional<PanelHit> draw_hover_text(const PreparedPanel& panel, const HiddenNames& hidden,
                                        const UiStyle& style);

/// Draws a frame or a ring around points, so that they stand out; one frame around the parts of a
/// stack together.
void draw_marked(const PreparedPanel& panel, const std::vector<PanelHit>& hits,
                 const HiddenNames& hidden, const UiStyle& style);

}  // namespace moonshard::viewer
