// Charts of what is inside points: memory, time, communication, privacy. Each is a function from
// details to a plot spec, so that it can be looked at without a window; the panel of the same name
// adds the controls. They say the same as the figures of scripts/moonshard/plot for the points that
// are shown.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "viewer/panels/chart_panel.h"
#include "viewer/widgets/axis_names.h"

namespace moonshard::viewer {

/// A finite number, or no figure: records are untrusted.
std::optional<double> figure(double value);

/// What distinguishes these points, one text each: only the axes in which they differ.
/// Without one axis, which the chart shows by other means, points may share a text.
std::vector<std::string> point_labels(const Workspace& workspace, const std::vector<PointRef>& refs,
                                      const std::string& without = "");

/// The x axis with a category for each point.
records::PlotAxis point_axis(const Workspace& workspace, const std::vector<PointRef>& refs,
                             const std::string& without = "");

/// Why a point has no figure, in short: its status, "reading" or "no value".
std::string missing_word(const Workspace& workspace, const DetailedPoint& point, bool waiting);

/// Text under the mouse: the whole name of the point, and why it failed.
std::string hover_label(const Workspace& workspace, PointRef ref);

/// Beyond it bars lie: names need lines of their own.
inline constexpr size_t kMostUprightPoints = 6;
/// Of a picture with one bar per point.
inline int stack_height(size_t num_points) {
  if (num_points <= kMostUprightPoints) return 560;
  return std::min(3600, 200 + 26 * static_cast<int>(num_points));
}

/// One bar per point, stacked of parts.
struct StackAsk {
  std::vector<std::string> parts;  ///< as in the records, from the foot up
  /// The figure of a part; NaN where the point does not have it.
  std::function<double(const PointDetail&, const std::string&)> value;
  bool bytes = false;  ///< else milliseconds
  bool share = false;  ///< of the sum of all parts, in percent
  std::string label;   ///< of the y axis
};
/// Adds the panel with its refs; false when no point has a figure. Points that have none (failed,
/// out of memory) stand in it with their status.
bool add_stacked_bars(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                      const StackAsk& ask, Chart& chart);

/// Empty state of a chart over the shown points: `what` is missing in all of them.
void say_nothing_shown(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                       const std::string& what, const std::string& next, Chart& chart);

/// True where there is no point at all to show, with an empty state that says why.
bool say_no_points(const Workspace& workspace, Chart& chart);

// ---- one function per panel ----

struct MemoryChoice {
  bool after_step = false;  ///< else at the peak
  bool share = false;
};
void make_memory_chart(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                       const MemoryChoice& choice, Chart& chart);

struct NamedDetail {
  std::string name;
  PointRef ref;
  std::shared_ptr<const PointDetail> detail;
  size_t color = 3;  ///< of its engine, as in every picture
};
/// The first is the selected point, others stand below it on the same axes.
void make_timeline_chart(const std::vector<NamedDetail>& points, Chart& chart);

enum class PhaseStatistic { Median, Mean, Min };
struct PhasesChoice {
  PhaseStatistic statistic = PhaseStatistic::Median;
  bool share = false;
};
void make_phases_chart(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                       const PhasesChoice& choice, Chart& chart);

void make_samples_chart(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                        bool with_warmup, Chart& chart);

struct LayersChoice {
  size_t top = 20;
  bool by_kind = false;
};
/// The second point, where there is one, is what the first is compared with.
void make_layers_chart(const std::vector<NamedDetail>& points, const LayersChoice& choice,
                       Chart& chart);

/// One point: per collective, and per rank where the record has it.
void make_communication_chart(const NamedDetail& point, Chart& chart);
void make_communication_comparison(const Workspace& workspace,
                                   const std::vector<DetailedPoint>& points, Chart& chart);

void make_privacy_chart(const NamedDetail& point, Chart& chart);

/// The selected point's detail first, then that of its baseline or, without one, of the first
/// pinned point; empty with an empty state in the chart when nothing is selected.
std::vector<NamedDetail> selected_and_baseline(const PanelContext& context, bool with_baseline,
                                               Chart& chart);

}  // namespace moonshard::viewer
