// What each point costs beyond a baseline: memory, time, throughput. The same rules as
// scripts/moonshard/analyze/overhead.lua, so that the window and the script say the same.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "viewer/data/run_data.h"

namespace moonshard::viewer {

struct Baseline {
  enum class Kind { None, Point, Axis };
  Kind kind = Kind::None;
  std::string run, point;   ///< Point: the run's path as it was opened, and the point's id
  std::string axis, value;  ///< Axis: e.g. mode = none, sharding = zero2, seq_length = 512
  bool operator==(const Baseline&) const = default;
};

struct PointPlace {
  size_t run = 0, point = 0;  ///< places in the list of runs and in its points
  bool operator==(const PointPlace&) const = default;
};

/// NaN: not known. A baseline compared with itself has 0 bytes more and ratios of 1.
struct Overhead {
  std::optional<PointPlace> baseline;
  std::string why_none;  ///< in words, where there is no baseline
  double memory_bytes = NAN, memory_percent = NAN;
  double time_ratio = NAN;        ///< above 1: slower
  double throughput_ratio = NAN;  ///< above 1: more tokens (or samples) per second
};

/// For each run, for each of its points. With an axis a point's baseline is the first point of its
/// run that has the axis's value and the same other axes; where its run has none, that of another
/// run which agrees in what is swept in either.
std::vector<std::vector<Overhead>> overheads(const std::vector<const RunData*>& runs,
                                             const Baseline& baseline);

/// What to begin with: the first baseline that a sweep named; else plain training, where the runs
/// have it beside other modes; else none.
Baseline default_baseline(const std::vector<const RunData*>& runs);

/// Every value of every swept option, as baselines to pick from.
std::vector<Baseline> baseline_choices(const std::vector<const RunData*>& runs);

/// "mode = none", "point 4f2a… of night_sweep", "no baseline".
std::string describe(const Baseline& baseline, const std::vector<const RunData*>& runs);

/// The engine that a name stands for: "no_dp" and "vanilla" are the seed documents' words for none.
std::string_view canonical_mode(std::string_view name);

}  // namespace moonshard::viewer
