// A plot spec made ready to draw: cleaned text, points split into those with and without a figure,
// axis ranges that any numbers in the file survive. Pure data and arithmetic, no ImGui: made once
// per spec.
#pragma once

#include <string>
#include <vector>

#include "runtime/records/plot_spec.h"

namespace moonshard::viewer {

struct Range {
  double min = 0, max = 1;
  double size() const { return max - min; }
};

/// A point without a figure; drawn at the axis with its text.
struct MissingPoint {
  double x = 0;
  std::string text;   ///< status word, e.g. "oom"; "<= 0" for a value a log axis cannot show
  size_t source = 0;  ///< index into the spec's series
};

struct PreparedSeries {
  std::string name;
  std::vector<double> x, y;    ///< points with a figure, in plot coordinates
  std::vector<size_t> source;  ///< for each of them its index in the spec's series
  std::vector<MissingPoint> missing;
  std::vector<std::string> labels;  ///< hover text by index in the spec's series; may be empty
};

struct PreparedPanel {
  records::PlotKind kind = records::PlotKind::Bars;
  std::string title;
  std::string x_label, y_label;  ///< with the unit in brackets
  bool x_log = false, y_log = false;
  std::vector<std::string> categories;  ///< empty for a numeric x axis
  std::vector<double> x_ticks;  ///< numeric axis with few distinct values: those; else empty
  std::vector<PreparedSeries> series;
  Range x_range, y_range;  ///< what the data needs, without room for text above bars
  bool markers = true;     ///< false for lines so dense that markers would merge
  double bar_width = 0.8;  ///< bars only; series stand side by side in one category
};

struct PreparedPlot {
  std::string title;
  int width = 900, height = 520;
  std::vector<PreparedPanel> panels;
  bool shared_legend = false;  ///< all panels show the same series: one legend for the figure
};

PreparedPlot prepare_plot(const records::PlotSpec& spec);

/// Range that leaves `above` pixels free over the data on an axis `pixels` long (log or linear).
Range with_room_above(const Range& range, double pixels, double above, bool log_scale);

/// Largest magnitude drawn; beyond it doubles lose the differences that ticks need.
inline constexpr double kMaxMagnitude = 1e100;

}  // namespace moonshard::viewer
