// A simulated step as a Chrome trace, which readers of real ones open.
#pragma once

#include <vector>

#include "runtime/base/json.h"
#include "runtime/plan/step_time.h"

namespace moonshard::plan {

/// Spans of one rank, or of all, with "modelled" in every name.
Json chrome_trace(const std::vector<TraceSpan>& spans, int rank = -1);

}  // namespace moonshard::plan
