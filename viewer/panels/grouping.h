// How charts tell points apart: by which option they are coloured, into which facets they are
// split, what their labels say. The default follows whatever varies among the points that are
// shown; the user may choose another option in every chart.
#pragma once

#include <string>
#include <vector>

#include "viewer/workspace.h"

namespace moonshard::viewer {

// Choices besides the name of a swept option.
inline constexpr const char* kByItself = "auto";
inline constexpr const char* kByNothing = "nothing";
inline constexpr const char* kByRun = "run";

/// What the shown points can be coloured by or split into: the three above (the run only where
/// several are shown) and every swept option in which they differ.
std::vector<std::string> grouping_choices(const Workspace& workspace);

/// What distinguishes these points, one text each: of every run the options in which its points
/// differ, without those that the chart shows by other means, and the run's name where there are
/// several runs and `with_run`. A single number is `alone` without its unit: an axis has it. Names
/// of lines are told `over` their x axis (telling_axes). May be empty, or shared by several points.
std::vector<std::string> labels_without(const Workspace& workspace,
                                        const std::vector<PointRef>& refs,
                                        const std::vector<std::string>& without,
                                        bool with_run = true, bool alone = true,
                                        const std::string& over = "");

/// The colours of points: a name each (empty: they all share one), and the options that it stands
/// for, which need no other mention.
struct Coloring {
  std::vector<std::string> names;
  std::vector<std::string> axes;
  bool by_run = false;
};
/// By default, run for run: the engine where it varies, else what the sweep compares (zero2,
/// zero3), else another option with words, else the number with the fewest values. Where one
/// engine has two names among the points, its own name is used.
Coloring color_points(const Workspace& workspace, const std::vector<PointRef>& refs,
                      const std::string& by);

struct Facet {
  std::string title;
  std::vector<PointRef> points;
};
/// Points in facets, in order of first appearance. By default one for each run, or for each model
/// of one run: figures of different models do not belong on one scale. At most `limit`; `left_out`
/// counts the points beyond.
std::vector<Facet> facets_of(const Workspace& workspace, const std::vector<PointRef>& refs,
                             const std::string& by, size_t limit, size_t& left_out);
/// What they are split by: the name of an option, kByRun or kByNothing.
std::string facet_key(const Workspace& workspace, const std::vector<PointRef>& refs,
                      const std::string& by);

/// Combo boxes "colour" and "facets" over a chart; true when one changed.
bool choose_grouping(const Workspace& workspace, std::string* color, std::string* facets);

}  // namespace moonshard::viewer
