// Summary of a list of samples. Every sample is kept in the records; these figures are derived.
#pragma once

#include <vector>

#include "runtime/base/json.h"

namespace moonshard::records {

struct Summary {
  size_t count = 0;
  double mean = 0, median = 0, min = 0, max = 0, p95 = 0;
  double iqr = 0;  ///< distance between the quartiles
};

/// Quantile by linear interpolation between order statistics (the "type 7" rule). q in [0, 1].
double quantile(std::vector<double> samples, double q);

Summary summarize(const std::vector<double>& samples);

/// {"count", "mean", "median", "min", "max", "p95", "iqr"}
Json to_json(const Summary& summary);

}  // namespace moonshard::records
