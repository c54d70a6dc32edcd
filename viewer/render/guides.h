// What helps to read a plot and is no data: named stretches of the x axis with a ruler on top,
// reference and fit lines with their text, and texts beside points. Between BeginPlot and EndPlot.
#pragma once

#include <string>
#include <vector>

#include "viewer/context.h"
#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// Finds free places for small texts: what is placed first stays, later ones give way.
class TextPlacer {
 public:
  /// Keeps an area free of texts.
  void block(ImVec2 min, ImVec2 max) { taken_.push_back({min, max}); }
  /// Draws text at the first of the offered top-left corners where it is free and inside the plot.
  /// False: there was none.
  bool place(ImDrawList* draw, const std::string& text, const std::vector<ImVec2>& corners,
             ImU32 color);

 private:
  struct Box {
    ImVec2 min, max;
  };
  std::vector<Box> taken_;
};

/// Height of the ruler in a plot of the given size; 0 without bands.
float band_ruler_height(const PreparedPanel& panel, ImVec2 area);

/// Shading behind the data.
void draw_band_shades(const PreparedPanel& panel, const UiStyle& style);
/// Limits of the bands over the data and their names in the ruler of that height.
void draw_band_ruler(const PreparedPanel& panel, float height, const UiStyle& style);

/// Keeps texts off lines, and off the marks of points without a figure.
void block_data(const PreparedPanel& panel, TextPlacer& placer, const HiddenNames& hidden);

/// Reference lines with their texts.
void draw_references(const PreparedPanel& panel, TextPlacer& placer, const HiddenNames& hidden,
                     const UiStyle& style);

/// Texts beside points of lines and scatter plots.
void draw_point_texts(const PreparedPanel& panel, TextPlacer& placer, const HiddenNames& hidden,
                      const UiStyle& style);

}  // namespace moonshard::viewer
