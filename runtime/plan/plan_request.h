// Predictions of tables of options: what bindings call.
#pragma once

#include "runtime/base/json.h"
#include "runtime/experiment/experiment_options.h"
#include "runtime/plan/prediction.h"

namespace moonshard::plan {

/// Options of an experiment as they resolve for a machine that need not be this one.
experiment::ExperimentOptions resolve_for(const Json& options, const Cluster& cluster);

/// { machine = a profile or its file, gpus, nodes, link, node_link, nics, memory_bytes, slow_ranks,
/// slow_by, jitter, seed, slowness }.
Cluster cluster_from_json(const Json& object);

/// A prediction (prediction.h) of one configuration, with `savings`.
Json predict_table(const Json& options, const Json& cluster);

/// space: { axes = { { name, values }, … } or nothing for the defaults, global_batch, keep, private
/// }. Plans that fit, the reasons why others do not, and the front of time against memory
/// (search.h).
Json search_table(const Json& options, const Json& cluster, const Json& space);

/// The simulated step as a Chrome trace, every span marked as modelled.
void write_trace(const Json& options, const Json& cluster, const std::string& file);

/// A simulated run of so many steps as a record (modelled_record.h); traces go into the folder, if
/// one is given.
Json record_table(const Json& options, const Json& cluster, int64_t steps,
                  const std::string& folder);

}  // namespace moonshard::plan
