#include "runtime/tracing/found_graph.h"

#include <algorithm>
#include <numeric>

namespace moonshard::tracing {
namespace {

// Of nodes of one moment.
int rank_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::Begin:
      return 0;
    case NodeKind::Call:
      return 1;
    case NodeKind::Point:
      return 2;
    case NodeKind::Device:
      return 3;
    case NodeKind::End:
      return 4;
  }
  return 5;
}

}  // namespace

void FoundGraph::sort_into(TracedGraph& graph, uint32_t begin) const {
  std::vector<uint32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const GraphNode &one = nodes_[a], &other = nodes_[b];
    if ((a == begin) != (b == begin)) return a == begin;
    if (one.start_us != other.start_us) return one.start_us < other.start_us;
    if (one.end_us != other.end_us) return one.end_us < other.end_us;
    const int rank = rank_of(one.kind), other_rank = rank_of(other.kind);
    return rank != other_rank ? rank < other_rank : a < b;
  });
  std::vector<uint32_t> place(order.size());
  graph.nodes.resize(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    graph.nodes[i] = nodes_[order[i]];
  }
  const auto leads_on = [&](const Edge& edge) { return place[edge.from] < place[edge.to]; };
  uint32_t num_edges = 0;
  for (const Edge& edge : edges_)
    if (leads_on(edge)) graph.nodes[place[edge.to]].num_edges += 1;
  for (GraphNode& node : graph.nodes) {
    node.first_edge = num_edges;
    num_edges += node.num_edges;
    node.num_edges = 0;
  }
  graph.edges.resize(num_edges);
  for (const Edge& edge : edges_) {
    if (!leads_on(edge)) continue;
    GraphNode& to = graph.nodes[place[edge.to]];
    graph.edges[to.first_edge + to.num_edges++] = {place[edge.from], edge.kind, edge.lag_us};
  }
}

}  // namespace moonshard::tracing
