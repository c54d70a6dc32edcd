// What a traced step would take if some of it were faster, or not there: the step's graph is passed
// through again with other lengths. What else would change (clocks, caches, another choice of
// kernels) is not in a graph.
#pragma once

#include <string>
#include <vector>

#include "runtime/tracing/critical_path.h"

namespace moonshard::tracing {

/// Which work a rule is about.
enum class RuleSubject : uint8_t {
  Name,   ///< kernels, operators and ranges, with everything inside of them
  Phase,  ///< e.g. "backward"
  Layer,
  Kind  ///< host, kernel, communication, memcpy or gap
};

struct ScaleRule {
  RuleSubject subject = RuleSubject::Name;
  std::string glob;
  double factor = 0;  ///< of its time; 0: it is not there
};

struct WhatIf {
  /// Clipping costs nothing: no norms, no factors, no first of two backward passes; gradients of
  /// samples stand for a plain step's gradients.
  bool norms = false;
  /// Noise costs nothing: an update is one pass over its memory.
  bool noise = false;
  std::vector<ScaleRule> rules;
  double update_bytes_per_s = 0;  ///< the device's bandwidth in an update; 0: not known
  /// Of such a step without a trace; 0: not known. A trace slows the host down: where the traced
  /// step is longer, the host's time is scaled until the graph gives this one.
  double measured_us = 0;
};

struct WhatIfResult {
  double measured_us = 0, predicted_us = 0;           ///< of the traced step
  double predicted_measured_us = 0;                   ///< of the one without a trace; 0: not known
  double host_scale = 1;                              ///< the host's time without a trace
  double removed_device_us = 0, removed_host_us = 0;  ///< work that is gone, on the path or not
  std::vector<PathPart> kinds;                        ///< of the critical path that would be
  std::vector<std::string> notes;  ///< what was assumed, and what could not be answered
  std::vector<uint64_t> matched;   ///< by rule: device work and calls that it is about
};

/// Throws UsageError where the trace cannot tell what is asked for, and for a rule that matches
/// nothing.
WhatIfResult what_if(const TraceData& trace, const StepWindow& step, const WhatIf& changes);

}  // namespace moonshard::tracing
