// How long collectives take between the ranks of this job, alone and by size: for machine profiles
// of ranks that are here (plan over Gloo on a CPU, over NCCL on a node).
#pragma once

#include <vector>

#include "runtime/comm/world.h"
#include "runtime/plan/machine_profile.h"

namespace moonshard::plan {

/// All ranks call it together, on tensors of the device; about `seconds` in all. Times are those of
/// the slowest rank, the median of several.
std::vector<CollectiveRate> measure_collectives(comm::World& world, c10::Device device,
                                                double seconds);

}  // namespace moonshard::plan
