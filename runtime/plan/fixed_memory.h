// What a rank holds from step to step: its parameters, the optimizer's state, the batch.
// Torch-free.
#pragma once

#include "runtime/plan/memory_ledger.h"

namespace moonshard::plan {

/// Puts it into the ledger, and `fixed`, `floor` and `host` into the plan.
void place_fixed_memory(const PlannedModel& model, bool is_private,
                        const sharding::ShardingOptions& sharding, const MemorySituation& situation,
                        MemoryLedger& ledger, MemoryPlan& plan);

}  // namespace moonshard::plan
