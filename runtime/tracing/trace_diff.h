// What differs between two traces: time on the device, and on the host, by phase, layer and name.
#pragma once

#include <string>
#include <vector>

#include "runtime/tracing/critical_path.h"

namespace moonshard::tracing {

struct DiffRow {
  std::string name;
  PathKind kind = PathKind::Kernel;  ///< of names
  double us[2] = {0, 0};             ///< of one step of either trace
  double count[2] = {0, 0};
  double change_us() const { return us[1] - us[0]; }
};

struct TraceDiff {
  double step_us[2] = {0, 0};    ///< median length of a step
  double device_us[2] = {0, 0};  ///< all work on the device, of one step
  size_t steps[2] = {0, 0};
  /// Largest change first. Names: kernels and copies; of traces without a device, operators with
  /// their own time.
  std::vector<DiffRow> phases, layers, names;
};

/// Of all steps of each; figures are of one step.
TraceDiff compare_traces(const TraceData& before, const TraceData& after);

}  // namespace moonshard::tracing
