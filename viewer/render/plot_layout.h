// A plot spec made ready to draw: cleaned text, points split into those with and without a figure,
// colours, axis ranges that are valid for any numbers in the file. Pure data and arithmetic, no
// ImGui: made once per spec.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/records/plot_spec.h"

namespace moonshard::viewer {

struct Range {
  double min = 0, max = 1;
  double size() const { return max - min; }
};

/// Names of series switched off by a click in the legend.
using HiddenNames = std::set<std::string>;

/// A point without a figure; drawn at the axis with its text.
struct MissingPoint {
  double x = 0;
  std::string text;       ///< status word, e.g. "oom"; "<= 0" for a value a log axis cannot show
  size_t source = 0;      ///< index into the spec's series
  bool no_place = false;  ///< it has no x either: listed in the plot's corner
};

struct PreparedSeries {
  std::string name;
  size_t color = 0;               ///< index for series_color and for the marker's shape
  std::vector<double> x, y;       ///< points with a figure, in plot coordinates
  std::vector<double> low, high;  ///< whiskers of these points (equal to y: none); or empty
  std::vector<size_t> source;     ///< for each of them its index in the spec's series
  std::vector<MissingPoint> missing;
  std::vector<std::string> labels;  ///< hover text by index in the spec's series; may be empty
  std::vector<std::string> texts;   ///< text beside the point, the same way; may be empty
};

struct LegendEntry {
  std::string name;
  size_t color = 0;
};

/// What a legend distinguishes; no entries: no legend is needed.
struct Legend {
  std::vector<LegendEntry> entries;
  records::PlotKind kind = records::PlotKind::Bars;
  bool markers = true;
};

struct PreparedPanel {
  records::PlotKind kind = records::PlotKind::Bars;
  std::string title;
  std::string x_label, y_label, value_label;  ///< with the unit in brackets
  bool x_log = false, y_log = false;
  bool horizontal = false;
  std::vector<std::string> categories;  ///< empty for a numeric x axis
  std::vector<double> x_ticks;  ///< numeric axis with few distinct values: those; else empty
  std::vector<PreparedSeries> series;
  std::vector<std::string> stack_names;  ///< stacked bars: more than one stack per category
  std::vector<records::PlotBand> bands;
  std::vector<records::PlotReference> references;
  Legend legend;
  Range x_range, y_range;  ///< what the data needs, without room for text above bars
  Range value_range;       ///< heat maps: what the colours span
  bool fixed_top = false;  ///< the spec says where the y axis ends
  bool markers = true;     ///< false for lines so dense that markers would merge
  double bar_width = 0.8;  ///< bars only; series stand side by side in one category
};

struct PreparedPlot {
  std::string title, note;
  size_t columns = 1;
  std::vector<PreparedPanel> panels;
  bool shared_legend = false;  ///< all panels show about the same series: one legend for all
  Legend legend;               ///< that one
};

PreparedPlot prepare_plot(const records::PlotSpec& spec);

/// For each series of a stacked panel the foot of each of its points, hidden series left out.
std::vector<std::vector<double>> stack_feet(const PreparedPanel& panel, const HiddenNames& hidden);

/// The figures of all series together.
std::vector<double> all_values(const PreparedPanel& panel);

/// A point of a panel: which series, and which entry of the spec's list.
struct PanelHit {
  size_t series = 0, source = 0;
};

/// From the foot to the top of each stack that one of these points belongs to, hidden series left
/// out.
struct MarkedStack {
  double place = 0, low = 0, high = 0;
};
std::vector<MarkedStack> marked_stacks(const PreparedPanel& panel,
                                       const std::vector<PanelHit>& hits,
                                       const HiddenNames& hidden);

/// Range that leaves `above` pixels free over the data on an axis `pixels` long (log or linear).
Range with_room_above(const Range& range, double pixels, double above, bool log_scale);
/// The same on both sides of a linear axis, for values over and under bars.
Range with_room_around(const Range& range, double pixels, double room);

/// Largest magnitude drawn; beyond it doubles lose the differences that ticks need.
inline constexpr double kMaxMagnitude = 1e100;

inline bool is_bars(records::PlotKind kind) {
  return kind == records::PlotKind::Bars || kind == records::PlotKind::StackedBars;
}

inline bool is_stacked(records::PlotKind kind) {
  return kind == records::PlotKind::StackedBars || kind == records::PlotKind::StackedArea;
}

// Steps of prepare_plot, in bar_places.cpp.

/// Different x values, of points without a figure too; stops beyond `limit`.
std::set<double> distinct_x(const PreparedPanel& panel, size_t limit);

/// Puts bars side by side, stacks on each other, into categories: the spec's own, or one for each
/// different x.
void place_bars(PreparedPanel& panel, const records::PlotPanel& spec);

// Steps of prepare_plot, in plot_ranges.cpp.

/// A value safe for every later computation: neither huge nor denormal.
double bounded(double value, bool log_scale);

/// Fills x_range, y_range, value_range and fixed_top from the series and the spec's own ends.
void find_ranges(PreparedPanel& panel, const records::PlotPanel& spec);

}  // namespace moonshard::viewer
