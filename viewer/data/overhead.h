// Baselines as a user picks them, and what each point costs beyond its own. The comparison itself
// is runtime/analysis/overhead.h, which Lua's scripts use, too.
#pragma once

#include <string>
#include <vector>

#include "runtime/analysis/overhead.h"
#include "viewer/data/run_data.h"

namespace moonshard::viewer {

struct Baseline {
  enum class Kind { None, Point, Axis };
  Kind kind = Kind::None;
  std::string run, point;   ///< Point: the run's path as it was opened, and the point's id
  std::string axis, value;  ///< Axis: e.g. mode = none, sharding = zero2, seq_length = 512
  bool operator==(const Baseline&) const = default;
};

using PointPlace = analysis::Place;
using analysis::Overhead;

/// For each run, for each of its points.
analysis::Overheads overheads(const std::vector<const RunData*>& runs, const Baseline& baseline);

/// What to begin with: the first baseline that a sweep named; else plain training, where the runs
/// have it beside other modes; else none.
Baseline default_baseline(const std::vector<const RunData*>& runs);

/// Every value of every swept option, as baselines to pick from.
std::vector<Baseline> baseline_choices(const std::vector<const RunData*>& runs);

/// "mode = none", "point 4f2a… of night_sweep", "no baseline".
std::string describe(const Baseline& baseline, const std::vector<const RunData*>& runs);

}  // namespace moonshard::viewer
