// What charts over many points share: which value groups them into series, what stands on the x
// axis, which metric is drawn, in which unit.
#pragma once

#include <string>
#include <vector>

#include "viewer/panels/chart_panel.h"

namespace moonshard::viewer {

// A figure can be drawn for every point: a metric by its key, or an overhead against the baseline,
// "overhead:time_ratio" and the like.

/// The figure of a point as it is stored; NaN where there is none.
double figure_of(const Workspace& workspace, PointRef ref, const std::string& key);

/// What an axis calls it, without unit.
std::string figure_label(const std::string& key);
/// The same for the shown points, whose peak memory may be modelled.
std::string figure_label(const Workspace& workspace, const std::string& key);

/// Unit and factor in which this figure of the shown points is drawn.
Unit figure_unit(const Workspace& workspace, const std::string& key);

/// Room for a combo box with its label: in the line of the widget before where it fits, else in the
/// next.
void begin_choice(const char* label, float width);

/// A combo box of figures; true when another was chosen.
bool choose_figure(const char* label, std::string& key, const Workspace& workspace);

/// A combo box of names; true when another was chosen.
bool choose_name(const char* label, std::string& name, const std::vector<std::string>& names);

/// What names the lines of these points over an axis, where `facet` is shown by other means: what
/// else they differ in; the engine, or the run, where that is nothing.
std::vector<std::string> series_names(const Workspace& workspace, const std::vector<PointRef>& refs,
                                      const std::string& over, const std::string& facet);

/// Facets that a chart shows at most.
inline constexpr size_t kMaxFacets = 12;
/// The note of a chart that leaves points out beyond that.
void note_left_out(size_t left_out, Chart& chart);

/// The texts and lists of one point in a series: label for the tooltip, status, reference.
struct SeriesBuilder {
  records::PlotSeries series;
  std::vector<PointRef> refs;
  void add(const Workspace& workspace, PointRef ref, double x, double y);
};

/// Series by name, in order of first appearance.
class SeriesList {
 public:
  SeriesBuilder& operator[](const std::string& name);
  /// Moves all of them into a panel, and their points into refs of the chart (last panel).
  void move_into(Chart& chart, records::PlotPanel panel);
  bool any_figure() const;
  /// Some series has figures at two places.
  bool grows() const;
  /// Takes out every series whose points stand at one place; returns how many points those were.
  size_t drop_single_places();
  /// Keeps so many series, the first ones; returns how many points the others had.
  size_t keep_first(size_t count);
  size_t size() const { return list_.size(); }

 private:
  std::vector<SeriesBuilder> list_;
};

}  // namespace moonshard::viewer
