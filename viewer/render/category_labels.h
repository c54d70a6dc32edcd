// Names under a category axis: level and wrapped where they fit, turned where not, thinned out
// where even that is too tight. ImPlot's own tick labels would run into each other.
#pragma once

#include <string>
#include <vector>

#include <imgui.h>

namespace moonshard::viewer {

struct CategoryLabels {
  std::vector<std::vector<std::string>> lines;  ///< per category; one line each when turned
  float angle = 0;                              ///< radians; 0 is level
  size_t step = 1;                              ///< every step-th name is shown
  float height = 0;                             ///< room they need below the axis
};

/// Arranges names over an axis of the given width with room_left of it for names that lean out
/// there.
CategoryLabels layout_category_labels(const std::vector<std::string>& names, float width,
                                      float room_left);

/// Draws them below the current ImPlot plot (between BeginPlot and EndPlot) at its tick positions.
void draw_category_labels(ImDrawList* draw, const CategoryLabels& labels, float top, ImU32 color);

}  // namespace moonshard::viewer
