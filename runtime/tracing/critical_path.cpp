#include "runtime/tracing/critical_path.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace moonshard::tracing {
namespace {

// Which edge of each node binds, by the measured times; kNone for Begin.
std::vector<uint32_t> binding_edges(const TracedGraph& graph) {
  std::vector<uint32_t> binding(graph.nodes.size(), kNone);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    double latest = -INFINITY;
    for (uint32_t k = node.first_edge; k < node.first_edge + node.num_edges; ++k) {
      const GraphEdge& edge = graph.edges[k];
      const GraphNode& from = graph.nodes[edge.from];
      const double ready = (begins_at_begin(edge.kind) ? from.start_us : from.end_us) + edge.lag_us;
      // Of two that bind, the device's own order explains more than a launch.
      if (ready > latest + 1e-6) {
        latest = ready;
        binding[i] = k;
      }
    }
  }
  return binding;
}

class PathWalk {
 public:
  PathWalk(const TraceData& trace, const HostLabels& labels, const TracedGraph& graph)
      : trace_(trace), labels_(labels), graph_(graph), cursor_(graph.end_us) {}

  std::vector<PathSegment> run() {
    const std::vector<uint32_t> binding = binding_edges(graph_);
    auto at = static_cast<uint32_t>(graph_.nodes.size() - 1);
    bool by_its_begin = false;  // it was left where it began: the rest of it is not on the path
    while (binding[at] != kNone) {
      const GraphNode& node = graph_.nodes[at];
      const GraphEdge& edge = graph_.edges[binding[at]];
      const GraphNode& from = graph_.nodes[edge.from];
      if (!by_its_begin) add_node(node);
      add_edge(node, edge, from);
      by_its_begin = begins_at_begin(edge.kind);
      at = edge.from;
    }
    cut(graph_.begin_us, PathKind::Host, graph_.nodes.front().lane, "before the first work");
    std::reverse(segments_.begin(), segments_.end());
    return std::move(segments_);
  }

 private:
  // From start_us to where the path has come so far.
  PathSegment* cut(double start_us, PathKind kind, uint32_t lane, const char* reason) {
    start_us = std::max(start_us, graph_.begin_us);
    if (start_us > cursor_ - kNothing) return nullptr;
    segments_.push_back({start_us, cursor_, lane, kind, kNone, reason, 0});
    cursor_ = start_us;
    return &segments_.back();
  }

  void add_node(const GraphNode& node) {
    if (node.event == kNone || node.kind == NodeKind::Point) return;
    const TraceEvent& event = trace_.events[node.event];
    PathSegment* own = cut(node.start_us, path_kind(trace_, event), node.lane, nullptr);
    if (own == nullptr) return;
    own->name = event.name;
    own->label = labels_.label_of[node.event];
  }

  void add_edge(const GraphNode& node, const GraphEdge& edge, const GraphNode& from) {
    switch (edge.kind) {
      case EdgeKind::Host:
        return add_host(node.lane, from.end_us);
      case EdgeKind::Start:
        if (node.kind != NodeKind::Device) return add_host(node.lane, from.end_us);
        return gap(node, from.end_us, "before the first work");
      case EdgeKind::Launch: {
        const double call_end = std::min(from.end_us, node.start_us);
        gap(node, call_end, "from launch to start");
        return add_node(from);
      }
      case EdgeKind::Share:
        return add_node(from);
      case EdgeKind::Stream:
        return gap(node, from.end_us, "between kernels");
      case EdgeKind::Wait:
        return gap(node, from.end_us, "waiting for another stream");
      case EdgeKind::Sync:
        if (PathSegment* own = cut(from.end_us, PathKind::Host, node.lane, nullptr)) {
          own->name = trace_.events[node.event].name;
          own->label = labels_.label_of[node.event];
        }
        return;
      case EdgeKind::Handover:
        if (PathSegment* own =
                cut(from.end_us, PathKind::Host, node.lane, "handing over to another thread"))
          own->label = label_at(node.lane, node.start_us);
        return;
    }
  }

  uint32_t label_at(uint32_t lane, double time_us) const {
    const std::vector<HostSegment>& segments = labels_.segments[lane];
    const auto behind = std::upper_bound(
        segments.begin(), segments.end(), time_us,
        [](double time, const HostSegment& segment) { return time < segment.start_us; });
    return behind == segments.begin() ? 0 : std::prev(behind)->label;
  }

  void gap(const GraphNode& node, double from_us, const char* reason) {
    PathSegment* own = cut(from_us, PathKind::Gap, node.lane, reason);
    if (own != nullptr && node.event != kNone) own->label = labels_.label_of[node.event];
  }

  // By the innermost operator of every moment.
  void add_host(uint32_t lane, double from_us) {
    from_us = std::max(from_us, graph_.begin_us);
    if (lane == kNone || labels_.segments[lane].empty()) {
      cut(from_us, PathKind::Host, lane, "not traced");
      return;
    }
    const std::vector<HostSegment>& segments = labels_.segments[lane];
    auto place = std::lower_bound(
        segments.begin(), segments.end(), cursor_,
        [](const HostSegment& segment, double time) { return segment.start_us < time; });
    while (cursor_ > from_us + kNothing) {
      if (place == segments.begin()) {
        cut(from_us, PathKind::Host, lane, "not traced");
        return;
      }
      const HostSegment& segment = *--place;
      const bool has_op = segment.op != kNone;
      PathSegment* own = cut(std::max(segment.start_us, from_us),
                             has_op ? host_kind(trace_.names[segment.op]) : PathKind::Host, lane,
                             has_op ? nullptr : "not traced");
      if (own == nullptr) continue;
      own->name = segment.op;
      own->label = segment.label;
    }
  }

  const TraceData& trace_;
  const HostLabels& labels_;
  const TracedGraph& graph_;
  double cursor_;
  std::vector<PathSegment> segments_;  // from the end
};

// Sums by a key that is a number.
class PartSums {
 public:
  void add(uint64_t key, const PathSegment& segment) {
    const auto [place, is_new] = places_.try_emplace(key, sums_.size());
    if (is_new) sums_.push_back({});
    PathPart& part = sums_[place->second];
    part.kind = segment.kind;
    part.us += segment.end_us - segment.start_us;
    part.count += 1;
  }
  template <typename NameOf>
  std::vector<PathPart> take(const NameOf& name_of) {
    for (const auto& [key, place] : places_) sums_[place].name = name_of(key);
    std::sort(sums_.begin(), sums_.end(), [](const PathPart& a, const PathPart& b) {
      return a.us != b.us ? a.us > b.us : a.name < b.name;
    });
    return std::move(sums_);
  }

 private:
  std::unordered_map<uint64_t, size_t> places_;
  std::vector<PathPart> sums_;
};

void add_up(const TraceData& trace, const HostLabels& labels, CriticalPath& path) {
  PartSums kinds, phases, layers, names;
  std::vector<std::string> reasons;
  constexpr uint64_t kReasons = 1ull << 40;
  for (const PathSegment& segment : path.segments) {
    const Label& label = labels.labels[segment.label];
    kinds.add(static_cast<uint64_t>(segment.kind), segment);
    phases.add(label.phase, segment);
    layers.add(label.layer, segment);
    uint64_t key = segment.name;
    if (segment.name == kNone) {
      const std::string reason = segment.reason != nullptr ? segment.reason : "not traced";
      const auto known = std::find(reasons.begin(), reasons.end(), reason);
      key = kReasons + static_cast<uint64_t>(known - reasons.begin());
      if (known == reasons.end()) reasons.push_back(reason);
    }
    names.add(key, segment);
  }
  const auto or_unknown = [](const std::string& name) { return name.empty() ? "-" : name; };
  path.kinds = kinds.take([](uint64_t key) { return kPathKinds[key]; });
  path.phases = phases.take([&](uint64_t key) { return or_unknown(labels.phases[key]); });
  path.layers = layers.take([&](uint64_t key) { return or_unknown(labels.layers[key]); });
  path.names = names.take([&](uint64_t key) {
    return key >= kReasons ? "(" + reasons[key - kReasons] + ")" : trace.names[key];
  });
}

}  // namespace

PathKind path_kind(const TraceData& trace, const TraceEvent& event) {
  switch (event.kind) {
    case EventKind::Kernel:
      // A plan's ranks have a lane for what their host computes: updates of offloaded states.
      return trace.is_modelled && trace.lanes[event.lane].name.starts_with("host")
                 ? PathKind::Host
                 : PathKind::Kernel;
    case EventKind::Communication:
      return PathKind::Communication;
    case EventKind::Copy:
      return PathKind::Copy;
    default:
      return host_kind(trace.name_of(event));
  }
}

PathKind host_kind(const std::string& op) {
  const bool sends = op.starts_with("gloo:") || op.starts_with("nccl:") || op.starts_with("c10d::");
  return sends ? PathKind::Communication : PathKind::Host;
}

CriticalPath critical_path(const TraceData& trace, const HostLabels& labels,
                           const TracedGraph& graph) {
  CriticalPath path;
  path.begin_us = graph.begin_us;
  path.end_us = graph.end_us;
  path.segments = PathWalk(trace, labels, graph).run();
  add_up(trace, labels, path);
  return path;
}

}  // namespace moonshard::tracing
