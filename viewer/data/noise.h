// Noise of step times, as reports name it: the bootstraps of runtime/analysis over a point's steps.
#pragma once

#include <optional>
#include <vector>

#include "runtime/analysis/bootstrap.h"
#include "viewer/data/run_data.h"

namespace moonshard::viewer {

using analysis::Interval;

/// Times of the measured steps in ms; empty where the record has none.
std::vector<double> step_samples(const PointDetail& detail);

/// Of the median; nothing below three samples.
std::optional<Interval> median_interval(const std::vector<double>& samples);
/// Of the ratio of two medians.
std::optional<Interval> ratio_interval(const std::vector<double>& of,
                                       const std::vector<double>& to);

}  // namespace moonshard::viewer
