#include "viewer/tracing/trace_index.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <utility>

namespace moonshard::viewer {
namespace {

constexpr std::string_view kCollectives[] = {"nccl",
                                             "gloo:",
                                             "c10d::",
                                             "mpi:",
                                             "allreduce",
                                             "all_reduce",
                                             "allgather",
                                             "all_gather",
                                             "alltoall",
                                             "reduce_scatter",
                                             "reducescatter",
                                             "all_to_all",
                                             "record_param_comms",
                                             "symm_mem::"};

struct Piece {
  double start, end;
};

TimePieces join(std::vector<Piece>& pieces) {
  const auto earlier = [](const Piece& a, const Piece& b) { return a.start < b.start; };
  if (!std::ranges::is_sorted(pieces, earlier)) std::ranges::sort(pieces, earlier);
  TimePieces result;
  for (const Piece& piece : pieces) result.append(piece.start, piece.end);
  result.shrink_to_fit();
  return result;
}

// Marks of ranges rather than of work done in them, and copies, by Kineto's category names.
bool is_no_compute(std::string_view category) {
  return category.find("annotation") != std::string_view::npos || category == "gpu_memcpy" ||
         category == "gpu_memset" || category == "python_function" || category == "overhead" ||
         category == "Trace";
}

struct LaneWork {
  TimePieces compute, communication;
};

// Only the outermost spans of each kind are collected: what lies in a compute span adds nothing.
LaneWork lane_work(const TraceLane& lane, const TraceIndex& index,
                   const std::vector<uint8_t>& no_compute) {
  std::array<std::vector<Piece>, 2> found;
  constexpr uint8_t kInCompute = 1, kInCommunication = 2;
  std::vector<uint8_t> outer, inner;  // what each span of the row lies in
  for (size_t depth = 0; depth < lane.rows.size(); ++depth) {
    const TraceRow& row = lane.rows[depth];
    inner.assign(row.size(), 0);
    if (depth > 0) {
      for_each_parent(lane.rows[depth - 1], row, [&](size_t parent, size_t child) {
        if (end_of(row, child) <= end_of(lane.rows[depth - 1], parent))
          inner[child] = outer[parent];
      });
    }
    for (size_t i = 0; i < row.size(); ++i) {
      const bool communication = index.communication[row.name[i]] != 0;
      if (!communication && no_compute[row.category[i]]) continue;
      const uint8_t kind = communication ? kInCommunication : kInCompute;
      if (!(inner[i] & kind) && row.length_us[i] > 0) {
        found[communication].push_back({row.start_us[i], end_of(row, i)});
      }
      inner[i] |= kind;
    }
    outer.swap(inner);
  }
  return {join(found[0]), join(found[1])};
}

// Walks through the edges of some lists of pieces in order of time.
class EdgeWalk {
 public:
  void add(const TimePieces& pieces, size_t lane, bool communication) {
    if (pieces.size() == 0) return;
    cursors_.push_back({&pieces, lane, communication, 0, true});
    queue_.push({pieces.start_us(0), cursors_.size() - 1});
  }
  struct Edge {
    double time;
    size_t lane;
    bool communication, opens;
  };
  bool next(Edge& edge) {
    if (queue_.empty()) return false;
    const auto [time, place] = queue_.top();
    queue_.pop();
    Cursor& cursor = cursors_[place];
    edge = {time, cursor.lane, cursor.communication, cursor.opens};
    if (cursor.opens) {
      cursor.opens = false;
      queue_.push({cursor.pieces->end_us(cursor.at), place});
    } else if (++cursor.at < cursor.pieces->size()) {
      cursor.opens = true;
      queue_.push({cursor.pieces->start_us(cursor.at), place});
    }
    return true;
  }

 private:
  struct Cursor {
    const TimePieces* pieces;
    size_t lane;
    bool communication;
    size_t at;
    bool opens;
  };
  using Next = std::pair<double, size_t>;
  std::vector<Cursor> cursors_;
  std::priority_queue<Next, std::vector<Next>, std::greater<Next>> queue_;
};

void sweep_rank(const std::vector<LaneWork>& lanes, TraceRank& rank) {
  EdgeWalk walk;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    walk.add(lanes[lane].compute, lane, false);
    walk.add(lanes[lane].communication, lane, true);
  }
  std::vector<uint8_t> communicates(lanes.size(), 0);
  size_t num_communicating = 0, num_computing = 0;
  size_t sum_computing = 0;  // the lane's number while exactly one computes
  double last = 0;
  EdgeWalk::Edge edge;
  while (walk.next(edge)) {
    if (num_communicating > 0 && edge.time > last) {
      rank.communication.append(last, edge.time);
      // A lane does not hide its own communication: Gloo's threads copy while they send.
      const bool hidden = num_computing > 1 || (num_computing == 1 && !communicates[sum_computing]);
      if (!hidden) rank.exposed.append(last, edge.time);
    }
    last = edge.time;
    if (edge.communication) {
      communicates[edge.lane] = edge.opens;
      edge.opens ? ++num_communicating : --num_communicating;
    } else {
      edge.opens ? ++num_computing : --num_computing;
      sum_computing += edge.opens ? edge.lane : -edge.lane;
    }
  }
  rank.communication.shrink_to_fit();
  rank.exposed.shrink_to_fit();
}

}  // namespace

TimePieces busy_pieces(const TraceLane& lane) {
  std::vector<Piece> pieces;
  for (size_t depth = 0; depth < lane.rows.size(); ++depth) {
    const TraceRow& row = lane.rows[depth];
    if (depth == 0) pieces.reserve(row.size());
    // Lower rows mostly lie inside the row above; only what does not adds to the busy time.
    std::vector<uint8_t> covered(depth > 0 ? row.size() : 0, 0);
    if (depth > 0) {
      const TraceRow& above = lane.rows[depth - 1];
      for_each_parent(above, row, [&](size_t parent, size_t child) {
        covered[child] = end_of(row, child) <= end_of(above, parent);
      });
    }
    for (size_t i = 0; i < row.size(); ++i) {
      if (depth > 0 && covered[i]) continue;
      if (row.length_us[i] > 0) pieces.push_back({row.start_us[i], end_of(row, i)});
    }
  }
  return join(pieces);
}

void find_exposed(const Trace& trace, TraceIndex& index) {
  std::vector<uint8_t> no_compute;
  for (const std::string& category : trace.categories) {
    no_compute.push_back(is_no_compute(category));
  }
  for (TraceRank& rank : index.ranks) {
    const auto first = trace.lanes.begin() + rank.first_lane;
    const auto last = first + rank.num_lanes;
    const bool gpu = std::any_of(first, last, [](const TraceLane& lane) { return lane.gpu; });
    std::vector<LaneWork> lanes;
    bool any = false;
    for (auto lane = first; lane != last; ++lane) {
      lanes.push_back(lane->gpu == gpu ? lane_work(*lane, index, no_compute) : LaneWork());
      any |= lanes.back().communication.size() > 0;
    }
    if (any) sweep_rank(lanes, rank);
  }
}

bool is_communication(std::string_view name) {
  if (name.starts_with("aten::")) return false;
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == static_cast<unsigned char>(b);
  };
  return std::ranges::any_of(kCollectives, [&](std::string_view part) {
    return std::search(name.begin(), name.end(), part.begin(), part.end(), same) != name.end();
  });
}

}  // namespace moonshard::viewer
