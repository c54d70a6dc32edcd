// Memory of optimizer states of 16 bits while they are updated: they are made wide slice by slice,
// of as many parts as fill one (optim/narrow_state.cpp). Torch-free.
#pragma once

#include "runtime/plan/memory_walk.h"

namespace moonshard::plan {

/// While a unit of so many elements is updated; 0 where states are as wide as they are used.
double widened_states(const MemorySituation& situation, double elements);

/// While all that is left for the end of the step is updated.
double widened_at_end(const PlannedModel& model, bool is_private,
                      const sharding::ShardingOptions& sharding, const MemorySituation& situation);

}  // namespace moonshard::plan
