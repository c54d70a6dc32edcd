// Nodes and edges of a step in the order in which they are found: edges name nodes by number, and
// the order of time is known at the end.
#pragma once

#include <vector>

#include "runtime/tracing/step_graph.h"

namespace moonshard::tracing {

class FoundGraph {
 public:
  uint32_t add(const GraphNode& node) {
    nodes_.push_back(node);
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  const GraphNode& node(uint32_t number) const { return nodes_[number]; }
  /// Nothing where one of them is kNone.
  void connect(uint32_t from, uint32_t to, EdgeKind kind, double lag_us) {
    if (from != kNone && to != kNone && from != to) edges_.push_back({from, to, kind, lag_us});
  }
  /// The nodes in the order of time, `begin` first, each with the edges that lead to it; edges that
  /// lead back in time are dropped.
  void sort_into(TracedGraph& graph, uint32_t begin) const;

 private:
  struct Edge {
    uint32_t from, to;
    EdgeKind kind;
    double lag_us;
  };
  std::vector<GraphNode> nodes_;
  std::vector<Edge> edges_;
};

}  // namespace moonshard::tracing
