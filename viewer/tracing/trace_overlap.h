// Steps of build_trace_index: which span lies in which, when a lane is busy, and which
// communication no compute hides.
#pragma once

#include <algorithm>

#include "viewer/tracing/trace_index.h"

namespace moonshard::viewer {

inline double end_of(const TraceRow& row, size_t i) {
  return row.start_us[i] + static_cast<double>(row.length_us[i]);
}

/// Calls visit(parent, child) for each span of a row that starts inside a span of the row above.
/// One walk through both.
template <typename Visit>
void for_each_parent(const TraceRow& above, const TraceRow& below, Visit visit) {
  size_t parent = 0;
  for (size_t child = 0; child < below.size(); ++child) {
    const double start = below.start_us[child];
    while (parent + 1 < above.size() && above.start_us[parent + 1] <= start) ++parent;
    if (parent < above.size() && above.start_us[parent] <= start && start < end_of(above, parent)) {
      visit(parent, child);
    }
  }
}

/// When some span of the lane is open.
TimePieces busy_pieces(const TraceLane& lane);

/// Fills communication and exposed of each rank. With streams of a GPU in the rank only these
/// count: a host thread merely starts collectives there. Annotations and copies do not count as
/// compute.
void find_exposed(const Trace& trace, TraceIndex& index);

}  // namespace moonshard::viewer
