// A traced step as a graph of what had to wait for what: calls of the host in their order, kernels
// behind the call that started them and behind the one before on their stream, streams behind
// events of others, the host behind what it synchronised with, threads behind those that gave them
// work. A CUDA graph is one call that starts many kernels: they are ordered by stream and time.
//
// Note: what binds. Of all that a node waits for, the last to be there is what it really waited
// for; the delay behind it is the node's own and stays with that edge. Other edges have the least
// delay that such edges have. With nothing changed, passing through the graph therefore gives the
// measured times again, and with something changed another edge may bind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tracing/host_labels.h"
#include "runtime/tracing/trace_data.h"

namespace moonshard::tracing {

enum class EdgeKind : uint8_t {
  Host,      ///< the same thread goes on
  Launch,    ///< from the begin of a call to what it started
  Stream,    ///< the same stream goes on
  Wait,      ///< a stream waits for another, or was seen to
  Share,     ///< from the begin of what had the device, until that left room for this
  Sync,      ///< the host waits for a device
  Handover,  ///< another thread goes on
  Start      ///< from the begin of the step
};

struct GraphEdge {
  uint32_t from = 0;  ///< a node before this one
  EdgeKind kind = EdgeKind::Host;
  double lag_us = 0;  ///< behind the end of `from`, or its begin
};

inline bool begins_at_begin(EdgeKind kind) {
  return kind == EdgeKind::Launch || kind == EdgeKind::Share;
}

enum class NodeKind : uint8_t { Begin, Call, Point, Device, End };

struct GraphNode {
  double start_us = 0, end_us = 0;
  uint32_t event = kNone;  ///< of calls and of what runs on a device
  uint32_t lane = kNone;
  NodeKind kind = NodeKind::Point;
  uint32_t first_edge = 0, num_edges = 0;  ///< in StepGraph::edges
};

struct TracedGraph {
  std::vector<GraphNode> nodes;  ///< in an order in which every edge goes forward; Begin, …, End
  std::vector<GraphEdge> edges;  ///< into nodes, by node
  double begin_us = 0, end_us = 0;
  bool waits_are_known = false;    ///< the trace names the events that streams waited for
  uint64_t num_graph_kernels = 0;  ///< started by CUDA graphs
};

TracedGraph build_graph(const TraceData& trace, const HostLabels& labels, const StepWindow& step);

}  // namespace moonshard::tracing
