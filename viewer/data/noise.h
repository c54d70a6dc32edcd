// Noise of step times: percentile bootstraps of medians and of their ratios, as
// scripts/moonshard/analyze/statistics.lua makes them. The generator is fixed and the same, so that
// the viewer and the reports name the same intervals (docs/analysis.md says what they cover).
#pragma once

#include <optional>
#include <vector>

#include "viewer/data/run_data.h"

namespace moonshard::viewer {

struct Interval {
  double value = 0, low = 0, high = 0;
  /// What is measured does not say on which side of the threshold the figure lies.
  bool contains(double threshold) const { return low <= threshold && threshold <= high; }
};

/// Times of the measured steps in ms; empty where the record has none.
std::vector<double> step_samples(const PointDetail& detail);

/// Where 95 % of resamples lie; nothing below three samples.
std::optional<Interval> median_interval(const std::vector<double>& samples);
/// Of the ratio of two medians; both lists are resampled, independently.
std::optional<Interval> ratio_interval(const std::vector<double>& of,
                                       const std::vector<double>& to);

}  // namespace moonshard::viewer
