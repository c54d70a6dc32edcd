// The critical path of a traced step: the chain of work, from its end back to its begin, of which
// every part had to wait for the one before. Shortening anything else does not shorten the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tracing/step_graph.h"

namespace moonshard::tracing {

enum class PathKind : uint8_t { Host, Kernel, Communication, Copy, Gap };
inline constexpr const char* kPathKinds[] = {"host", "kernel", "communication", "memcpy", "gap"};

/// Shorter is what rounding leaves between two spans of a plan, in microseconds: no gap.
inline constexpr double kNothing = 1e-6;

struct PathSegment {
  double start_us = 0, end_us = 0;
  uint32_t lane = kNone;
  PathKind kind = PathKind::Host;
  uint32_t name = kNone;         ///< in TraceData::names
  const char* reason = nullptr;  ///< where there is no name: what the time went into
  uint32_t label = 0;            ///< in HostLabels::labels
};

/// Time of the path that has something in common.
struct PathPart {
  std::string name;
  PathKind kind = PathKind::Host;  ///< of names; of phases and layers not used
  double us = 0;
  uint64_t count = 0;
};

struct CriticalPath {
  double begin_us = 0, end_us = 0;
  std::vector<PathSegment> segments;  ///< in the order of time, without holes
  /// Each sums up to the step's length. Largest first.
  std::vector<PathPart> kinds, phases, layers, names;
  double length_us() const { return end_us - begin_us; }
};

CriticalPath critical_path(const TraceData& trace, const HostLabels& labels,
                           const TracedGraph& graph);

PathKind path_kind(const TraceData& trace, const TraceEvent& event);
/// Host time in a collective counts as communication.
PathKind host_kind(const std::string& op);

}  // namespace moonshard::tracing
