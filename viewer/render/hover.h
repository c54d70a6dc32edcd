// The tooltip over a plot: which point is under the mouse and what it says.
#pragma once

#include <optional>

#include "viewer/context.h"
#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// A point of a panel: which series, and which entry of the spec's list.
struct PanelHit {
  size_t series = 0, source = 0;
};

/// Shows the tooltip of the nearest point, if the mouse is over the current ImPlot plot and near
/// one, and says which it is.
std::optional<PanelHit> draw_hover_text(const PreparedPanel& panel, const HiddenNames& hidden,
                                        const UiStyle& style);

/// Draws a frame or a ring around one point, so that it stands out.
void draw_marked(const PreparedPanel& panel, const PanelHit& hit, const HiddenNames& hidden,
                 const UiStyle& style);

}  // namespace moonshard::viewer
