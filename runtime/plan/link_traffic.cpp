#include "runtime/plan/link_traffic.h"

#include <algorithm>

namespace moonshard::plan {
namespace {

// Of the least time between two nodes, for every further node that a ring passes.
constexpr double kFurtherNode = 0.25;
// Bytes that count as nothing left, against rounding.
constexpr double kNothing = 1e-6;

}  // namespace

// Links are numbered: ports of the ranks, then uplinks of the nodes. Folded: one of each.
LinkTraffic::LinkTraffic(const Topology& topology, bool folded)
    : topology_(topology), folded_(folded) {
  const auto ports = static_cast<size_t>(folded ? 1 : topology.ranks());
  const auto uplinks = static_cast<size_t>(folded ? 1 : topology.nodes);
  capacity_.assign(ports, topology.link.bytes_per_s);
  capacity_.resize(ports + uplinks, topology.adapters() * topology.node_link.bytes_per_s);
  load_.assign(capacity_.size(), 0);
}

Route LinkTraffic::route_of(const RankGroup& group, int64_t groups) const {
  std::vector<int64_t> members(static_cast<size_t>(topology_.nodes),
                               0);  // by node
  for (int64_t i = 0; i < group.size; ++i)
    ++members[static_cast<size_t>((group.first + i * group.stride) / topology_.gpus)];
  const int64_t most = *std::max_element(members.begin(), members.end());
  const auto nodes = static_cast<double>(members.size()) -
                     static_cast<double>(std::count(members.begin(), members.end(), 0));

  Route route;
  route.most_per_s = 1e300;
  const size_t uplink = folded_ ? 1 : static_cast<size_t>(topology_.ranks());
  if (most > 1) {
    route.most_per_s = topology_.link.bytes_per_s;
    if (folded_) {
      route.uses.push_back({0, 1});
    } else {
      for (int64_t i = 0; i < group.size; ++i)
        route.uses.push_back({static_cast<size_t>(group.first + i * group.stride), 1});
    }
  }
  if (nodes <= 1) {
    route.latency_s = topology_.link.latency_s;
    return route;
  }
  route.latency_s = topology_.node_link.latency_s * (1 + kFurtherNode * (nodes - 2));
  // A rank drives its own share of the node's adapters, at least one.
  const double own =
      static_cast<double>(most) * topology_.adapters() / static_cast<double>(topology_.gpus);
  route.most_per_s =
      std::min(route.most_per_s, std::max(1.0, own) * topology_.node_link.bytes_per_s);
  if (folded_) {
    const double of_a_node =
        static_cast<double>(groups) * nodes / static_cast<double>(topology_.nodes);
    route.uses.push_back({uplink, std::max(1.0, of_a_node)});
  } else {
    for (size_t node = 0; node < members.size(); ++node)
      if (members[node] > 0) route.uses.push_back({uplink + node, 1});
  }
  return route;
}

size_t LinkTraffic::start(double begin, const Route& route, double bytes) {
  const size_t number = transfers_.size();
  transfers_.push_back({number, &route, bytes, 0});
  waiting_.push({begin + route.latency_s, number});
  return number;
}

void LinkTraffic::share() {
  for (const Transfer& transfer : active_)
    for (const Route::Use& use : transfer.route->uses) load_[use.link] += use.weight;
  for (Transfer& transfer : active_) {
    transfer.per_s = transfer.route->most_per_s;
    for (const Route::Use& use : transfer.route->uses)
      transfer.per_s = std::min(transfer.per_s, capacity_[use.link] / load_[use.link]);
  }
  for (const Transfer& transfer : active_)
    for (const Route::Use& use : transfer.route->uses) load_[use.link] = 0;
}

void LinkTraffic::move_to(double moment) {
  for (Transfer& transfer : active_) transfer.bytes -= transfer.per_s * (moment - now_);
  now_ = moment;
}

std::optional<size_t> LinkTraffic::next_end() {
  while (true) {
    double end = 1e300;
    size_t first = 0;
    for (size_t i = 0; i < active_.size(); ++i) {
      const double own = now_ + std::max(0.0, active_[i].bytes) / active_[i].per_s;
      if (own >= end) continue;
      end = own;
      first = i;
    }
    const double start = waiting_.empty() ? 1e300 : std::max(now_, waiting_.top().moment);
    if (waiting_.empty() && active_.empty()) return {};
    if (start <= end) {
      move_to(start);
      active_.push_back(transfers_[waiting_.top().number]);
      waiting_.pop();
      share();
      if (active_.back().bytes > kNothing) continue;
      end = now_;
      first = active_.size() - 1;
    }
    move_to(end);
    const size_t number = active_[first].number;
    active_[first] = active_.back();
    active_.pop_back();
    share();
    return number;
  }
}

}  // namespace moonshard::plan
