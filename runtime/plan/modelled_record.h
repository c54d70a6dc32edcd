// A simulated run as the record of an experiment: the same fields and the same trace files as a
// real one has, so that tables, figures and the viewer open them. Every figure is modelled, and
// says so.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/plan/prediction.h"
#include "runtime/records/schema.h"

namespace moonshard::plan {

/// "modelled:16 = 2 x 8 h200, infiniband": what a modelled record has as `world`. Readers take a
/// point whose world begins with "modelled:" as wholly modelled (records/run_table.cpp).
std::string modelled_world(const Cluster& cluster);

/// `steps` of a run; with stragglers each has its own times. A configuration that does not fit has
/// status oom and phase plan. With a folder, the first step's trace of each simulated rank, at most
/// eight, is written into it under the names of real traces.
records::Result modelled_record(const experiment::ExperimentOptions& resolved,
                                const Cluster& cluster, int64_t steps,
                                const std::filesystem::path& folder = {});

}  // namespace moonshard::plan
