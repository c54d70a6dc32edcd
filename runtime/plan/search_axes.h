// The choices that a search tries by itself, each with the usual value first.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/prediction.h"

namespace moonshard::plan {

/// What is tried when nobody says: wrappers and HSDP groups that the ranks and what was `asked`
/// allow, prefetching, offload, checkpointing, micro-batches of the batch; engines, unless `mode`
/// was given; two dtypes, unless one was.
std::vector<std::pair<std::string, std::vector<Json>>> default_axes(
    const experiment::ExperimentOptions& base, const Cluster& cluster, const Json& asked,
    int64_t global_batch);

}  // namespace moonshard::plan
