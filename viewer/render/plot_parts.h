// The pieces that draw_plot is made of, one source file each or two. All draw_ calls belong between
// ImPlot::BeginPlot and EndPlot, and leave hidden series out.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <imgui.h>
#include <implot.h>

#include "viewer/context.h"
#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

// marks.cpp, bars.cpp, heat_map.cpp: what stands for data, and the marks of points without a figure

/// A rectangle in pixels, made of any two opposite corners.
struct PixelBox {
  ImVec2 min, max;
  PixelBox(ImVec2 a, ImVec2 b)
      : min(std::min(a.x, b.x), std::min(a.y, b.y)), max(std::max(a.x, b.x), std::max(a.y, b.y)) {}
};

/// A place on the category axis and a value, in pixels of the current plot.
inline ImVec2 to_pixels(const PreparedPanel& panel, double place, double value) {
  return panel.horizontal ? ImPlot::PlotToPixels(value, place) : ImPlot::PlotToPixels(place, value);
}

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

// guides.cpp: what helps to read a plot and is no data: named stretches of the x axis with a ruler
// on top, reference and fit lines with their text, texts beside points

/// Finds free places for small texts: what is placed first stays, later ones give way.
class TextPlacer {
 public:
  /// Keeps an area free of texts.
  void block(ImVec2 min, ImVec2 max) { taken_.emplace_back(min, max); }
  /// Draws text at the first of the offered top-left corners where it is free and inside the plot;
  /// not at all when there is none.
  void place(ImDrawList* draw, const std::string& text, const std::vector<ImVec2>& corners,
             ImU32 color);

 private:
  std::vector<PixelBox> taken_;
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

// axes.cpp: labels, scales, limits and ticks whose texts keep clear of each other

/// Names instead of numbers stand below the plot (drawn by category_labels).
bool has_named_x(const PreparedPanel& panel);

/// Names from top to bottom beside the plot: rows of a heat map, or lying bars.
bool has_named_y(const PreparedPanel& panel);
/// Lying bars so tall that their scale stands above them, too.
bool has_upper_axis(const PreparedPanel& panel, float height);
inline constexpr float kTallEm = 66;

/// Room left of the plot for these names, of which the texts take at most `limit`; and what limits
/// them in a panel of the given width that has its names for itself.
float names_width(const PreparedPanel& panel, float limit);
float names_limit(float width);

/// Sets the axes up between BeginPlot and the first item. y_range is that of the values, with room
/// for text; area the expected size of the plot in pixels. Names beside the plot are at most
/// name_room wide; 0: the panel left of this one has them.
void setup_axes(const PreparedPanel& panel, const Range& y_range, ImVec2 area, float name_room,
                ImPlotCond cond);

// category_labels.cpp: names under a category axis, level and wrapped where they fit, turned where
// not, thinned out where even that is too tight. ImPlot's own would run into each other.

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

// figure_layout.cpp: how a figure is divided into panels

/// Width of the y axis with its label, before ImPlot has measured it. Only the choice between level
/// and turned text depends on it.
inline constexpr float kAxisWidthEm = 5.0f;

struct PanelFrame {
  ImVec2 min, size;  ///< the panel's share of the figure
  float footer = 0;  ///< below the plot: category names and x label; equal in a row
  float ruler = 0;   ///< of bands on top of the plot; equal for all panels
  float title = 0;   ///< height of the panel's title; equal in a row
  float names = 0;  ///< the most that texts beside the plot take; 0: the panel at its left has them
  CategoryLabels labels;
};

/// Height of a centred title that may wrap; draws it when draw is given.
float title_block(const std::string& text, ImVec2 top_left, float width, const UiStyle& style,
                  float factor, ImDrawList* draw);

/// Distance of a note's lines, in line heights.
inline constexpr float kNoteLine = 1.15f;
/// The lines of the small text below a figure of the given width, in the small font; and the room
/// that they need.
std::vector<std::string> note_lines(const std::string& note, float width);
float note_height(const std::string& note, float width);

/// Splits the figure into columns and rows; the plots of one row end at the same height. Rows of
/// lying bars are as high as their number of bars asks for.
std::vector<PanelFrame> layout_panels(const PreparedPlot& plot, ImVec2 min, ImVec2 size,
                                      const UiStyle& style);

// legend.cpp: its own rows above the plot, so that it never covers data. Own code instead of
// ImPlot's, because names from files are shown literally and long lists must wrap.

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

// hover.cpp: which point is under the mouse and what it says

/// Shows the tooltip of the nearest point, if the mouse is over the current ImPlot plot and near
/// one, and says which it is.
std::optional<PanelHit> draw_hover_text(const PreparedPanel& panel, const HiddenNames& hidden,
                                        const UiStyle& style);

/// Draws a frame or a ring around points, so that they stand out; one frame around the parts of a
/// stack together.
void draw_marked(const PreparedPanel& panel, const std::vector<PanelHit>& hits,
                 const HiddenNames& hidden, const UiStyle& style);

}  // namespace moonshard::viewer
