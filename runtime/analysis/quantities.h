// What of a step can grow with a size: each quantity's name, unit, and how it is read from a point.
#pragma once

#include "runtime/analysis/rows.h"

namespace moonshard::analysis {

struct Quantity {
  const char *name, *unit;
  bool needs_detail;  ///< else the metrics are enough
  /// NaN where it was not measured, or not read: `detail` may be null.
  double (*read)(const records::Metrics& metrics, const records::Result* detail);
};

const std::vector<Quantity>& quantities();
/// Null for a name that there is not.
const Quantity* find_quantity(std::string_view name);

/// Time of all per-sample norms in the watched step: the sum over layers where they were timed.
double norms_ms(const records::Result* detail);

/// Median of a phase; NaN where it was not timed.
double phase_median_ms(const records::Result* detail, std::string_view phase);

}  // namespace moonshard::analysis
