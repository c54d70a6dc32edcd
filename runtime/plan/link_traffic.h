// Transfers on the links of a cluster. Every GPU has a port to the others of its node, every node
// an uplink that its ranks share; transfers that use one of them at the same time share its
// bandwidth in equal parts. A fluid simulation from event to event. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

namespace moonshard::plan {

/// Bytes per second and direction of a ring, and the least time of a collective.
struct LinkRate {
  double bytes_per_s = 0, latency_s = 0;
};

/// Nodes of equal GPUs. Ranks are numbered node by node.
struct Topology {
  int64_t gpus = 1, nodes = 1;
  LinkRate link;       ///< of a GPU to the others of its node
  LinkRate node_link;  ///< of one network adapter between nodes
  double nics = 0;     ///< adapters of a node; 0: one per GPU

  int64_t ranks() const { return gpus * nodes; }
  double adapters() const { return nics > 0 ? nics : static_cast<double>(gpus); }
};

/// Ranks first, first + stride, …: those of a collective.
struct RankGroup {
  int64_t first = 0, stride = 1, size = 1;
};

/// What a collective of a group occupies while it runs.
struct Route {
  struct Use {
    size_t link;
    double weight;  ///< how many transfers of its kind are there at once
  };
  std::vector<Use> uses;
  double most_per_s = 0;  ///< of one transfer, alone
  double latency_s = 0;
};

class LinkTraffic {
 public:
  /// `folded`: one rank stands for all of them, and one group for all groups of its kind.
  LinkTraffic(const Topology& topology, bool folded);

  /// The route of a group; `groups`: how many of its kind there are, for a folded cluster. A ring
  /// enters every node once, so that each further node adds to its least time.
  Route route_of(const RankGroup& group, int64_t groups) const;

  /// A transfer that begins at a moment not before now(), on a route that outlives it. Returns its
  /// number, from 0.
  size_t start(double begin, const Route& route, double bytes);
  /// The next transfer to end: its number, and now() is when it ends. None: nothing is under way.
  std::optional<size_t> next_end();
  double now() const { return now_; }

 private:
  struct Transfer {
    size_t number;
    const Route* route;
    double bytes, per_s;
  };
  struct Start {
    double moment;
    size_t number;
    bool operator>(const Start& other) const {
      return moment != other.moment ? moment > other.moment : number > other.number;
    }
  };

  void share();
  void move_to(double moment);

  Topology topology_;
  bool folded_;
  std::vector<double> capacity_, load_;
  std::vector<Transfer> transfers_;  ///< by number, until they begin
  std::priority_queue<Start, std::vector<Start>, std::greater<>> waiting_;
  std::vector<Transfer> active_;
  double now_ = 0;
};

}  // namespace moonshard::plan
