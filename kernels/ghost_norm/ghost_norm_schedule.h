// Which cluster computes which pair of tiles, decided on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace moonshard::kernels {

/// Cluster c takes items[first[c]] ... items[first[c + 1] - 1] in this order. Items are numbered
/// through all groups.
struct GhostSchedule {
  std::vector<uint16_t> first, items;
};

/// Groups in order of falling cost, `counts[k]` items of `costs[k]` each: every item goes to the
/// cluster that has the least to do so far. A block's groups differ fourfold in length, so handing
/// the items round in turn would leave a quarter of the GPU idle at the end. Schedules are kept: a
/// model asks for the same few in every step.
std::shared_ptr<const GhostSchedule> ghost_schedule(const std::vector<int64_t>& costs,
                                                    const std::vector<int64_t>& counts,
                                                    int clusters);

}  // namespace moonshard::kernels
