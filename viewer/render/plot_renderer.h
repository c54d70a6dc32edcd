// Draws a plot spec with ImPlot. The panel in the window and the PNG export both call draw_plot, so
// the picture in the folder and the one on the screen are the same code.
#pragma once

#include <optional>
#include <vector>

#include <imgui.h>

#include "viewer/context.h"
#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// One point of a figure.
struct PlotHit {
  size_t panel = 0;
  PanelHit at;
};

/// What the user changed about a plot. One per shown plot, kept by the caller.
struct PlotState {
  std::vector<HiddenNames> hidden;  ///< per panel; all panels of a shared legend use the first
  bool fit = true;                  ///< set: the next draw shows the whole range again
  std::vector<PlotHit> marked;      ///< points to frame, e.g. those that are selected elsewhere
  std::optional<double> cursor_x;   ///< an upright line in every panel
  // Set by the draw:
  std::optional<PlotHit> hovered;   ///< the point under the mouse
  std::optional<double> hovered_x;  ///< place of the mouse on the x axis, while it is over a panel
  bool clicked = false;             ///< the mouse was clicked over a panel, and not dragged
};

/// Draws the figure into size pixels at the cursor of the current ImGui window. Interactive plots
/// can be panned and zoomed and show a tooltip; the others stand still.
void draw_plot(const PreparedPlot& plot, PlotState& state, ImVec2 size, const UiStyle& style,
               bool interactive);

/// Columns of panels, at most as many as asked for, in which each is wide enough to be read.
size_t readable_columns(const PreparedPlot& plot, size_t asked, float width);
/// The least height at which bars, words and axes of a plot of that width keep apart.
float readable_height(const PreparedPlot& plot, float width, const UiStyle& style);

}  // namespace moonshard::viewer
