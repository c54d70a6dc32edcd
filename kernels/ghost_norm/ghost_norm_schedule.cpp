#include "kernels/ghost_norm/ghost_norm_schedule.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

namespace moonshard::kernels {
namespace {

// Fixed cost of an item besides its products: starting, reducing, storing.
constexpr int64_t kItemOverhead = 4;
constexpr size_t kMostKept = 64;

GhostSchedule make_schedule(const std::vector<int64_t>& costs, const std::vector<int64_t>& counts,
                            int clusters) {
  using Load =
      std::pair<int64_t, int>;  // equal loads: the lower cluster first, always the same way
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int c = 0; c < clusters; ++c) loads.emplace(0, c);
  std::vector<std::vector<uint16_t>> lists(static_cast<size_t>(clusters));
  uint16_t item = 0;
  for (size_t k = 0; k < costs.size(); ++k) {
    for (int64_t i = 0; i < counts[k]; ++i, ++item) {
      const auto [load, cluster] = loads.top();
      loads.pop();
      lists[static_cast<size_t>(cluster)].push_back(item);
      loads.emplace(load + costs[k] + kItemOverhead, cluster);
    }
  }
  GhostSchedule schedule;
  schedule.first.push_back(0);
  for (const auto& list : lists) {
    schedule.items.insert(schedule.items.end(), list.begin(), list.end());
    schedule.first.push_back(static_cast<uint16_t>(schedule.items.size()));
  }
  return schedule;
}

}  // namespace

std::shared_ptr<const GhostSchedule> ghost_schedule(const std::vector<int64_t>& costs,
                                                    const std::vector<int64_t>& counts,
                                                    int clusters) {
  static std::mutex mutex;
  static std::map<std::vector<int64_t>, std::shared_ptr<const GhostSchedule>> kept;
  std::vector<int64_t> key{clusters};
  key.insert(key.end(), costs.begin(), costs.end());
  key.insert(key.end(), counts.begin(), counts.end());
  const std::lock_guard lock(mutex);
  if (kept.size() >= kMostKept) kept.clear();
  auto& schedule = kept[key];
  if (!schedule)
    schedule = std::make_shared<const GhostSchedule>(make_schedule(costs, counts, clusters));
  return schedule;
}

int ghost_slices(int64_t items, int64_t a_cost, int64_t g_cost, int clusters) {
  const auto end_of = [&](int64_t slices) {
    const int64_t rounds = (items * slices + clusters - 1) / clusters;
    return rounds * (a_cost + (g_cost + slices - 1) / slices + kItemOverhead);
  };
  int best = 1;
  for (int slices = 2; slices <= std::min<int64_t>(kMostGhostSlices, g_cost); ++slices)
    if (end_of(slices) < end_of(best)) best = slices;
  return best;
}

std::vector<std::vector<const GhostGroupView*>> ghost_batches(
    const std::vector<GhostGroupView>& groups, size_t most_groups, size_t most_tensors) {
  std::vector<std::vector<const GhostGroupView*>> batches;
  size_t tensors = 0;  // of the last batch
  for (const GhostGroupView& group : groups) {
    if (group.g.size() > kMostGhostLayers) {
      throw std::runtime_error("ghost_norm: expected at most " + std::to_string(kMostGhostLayers) +
                               " layers in a group, got " + std::to_string(group.g.size()) +
                               "; split the group");
    }
    const size_t own = 1 + group.g.size();
    if (batches.empty() || batches.back().size() == most_groups || tensors + own > most_tensors) {
      batches.emplace_back();
      tensors = 0;
    }
    batches.back().push_back(&group);
    tensors += own;
  }
  return batches;
}

}  // namespace moonshard::kernels
