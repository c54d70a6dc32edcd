// Which cluster computes which pair of tiles, decided on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/ghost_norm/ghost_norm_launch.h"

namespace moonshard::kernels {

/// The groups in order, cut into launches of so many groups and tensors at most: a group has its
/// input and a gradient per layer, and stays whole. Throws for a group of more layers than
/// kMostGhostLayers.
std::vector<std::vector<const GhostGroupView*>> ghost_batches(
    const std::vector<GhostGroupView>& groups, size_t most_groups, size_t most_tensors);

/// Cluster c takes items[first[c]] ... items[first[c + 1] - 1] in this order. Items are numbered
/// through all groups.
struct GhostSchedule {
  std::vector<uint16_t> first, items;
};

/// Groups in order of falling cost, `counts[k]` items of `costs[k]` each: every item goes to the
/// cluster with the least work so far. A block's groups differ fourfold in length, so round-robin
/// would leave a quarter of the GPU idle at the end. Schedules are cached: a model uses the same
/// few in every step.
std::shared_ptr<const GhostSchedule> ghost_schedule(const std::vector<int64_t>& costs,
                                                    const std::vector<int64_t>& counts,
                                                    int clusters);

/// Into how many slices of g's columns one layer's `items` are cut, where its launch has nothing
/// else: as many as let the last round end earliest. Every slice forms the products of a again.
int ghost_slices(int64_t items, int64_t a_cost, int64_t g_cost, int clusters);
constexpr int kMostGhostSlices = 8;

}  // namespace moonshard::kernels
