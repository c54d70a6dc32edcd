// Metrics of a point by subject, so that a list of thirty can be read.
#pragma once

#include <string>
#include <vector>

namespace moonshard::viewer {

struct MetricGroup {
  const char* title;
  std::vector<size_t> keys;  ///< places in the list that was given
};

/// Keys by subject, in the order of the list; empty subjects and figures that another key says in
/// other units (peak_memory_mb beside peak_memory_bytes) are left out.
std::vector<MetricGroup> metric_groups(const std::vector<std::string>& keys);

}  // namespace moonshard::viewer
