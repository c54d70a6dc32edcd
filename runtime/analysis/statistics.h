// Summary of a list of samples. Every sample is kept in the records; these figures are derived.
#pragma once

#include <vector>

#include "runtime/records/schema.h"

namespace moonshard::analysis {

/// Quantile by linear interpolation between order statistics (the "type 7" rule). q in [0, 1].
double quantile(std::vector<double> samples, double q);

/// A count of 0 and zeros for no samples.
records::Statistics summarize(const std::vector<double>& samples);

}  // namespace moonshard::analysis
