#include "runtime/plan/verified_savings.h"

#include <algorithm>
#include <optional>

#include "runtime/analysis/savings.h"
#include "runtime/base/errors.h"
#include "runtime/records/schema_json.h"

namespace moonshard::plan {
namespace {

constexpr double kWorthSaying = 0.01;  // of the peak

// Ranks are added where there are others of their kind: nodes to nodes, GPUs to a node.
Cluster with_ranks(Cluster cluster, int64_t ranks) {
  if (cluster.nodes > 1)
    cluster.nodes = std::max<int64_t>(1, ranks / cluster.gpus);
  else
    cluster.gpus = ranks;
  cluster.slowness.clear();
  cluster.stragglers = {};
  return cluster;
}

// None where the change is impossible.
std::optional<double> peak_with(const experiment::ExperimentOptions& options,
                                const analysis::ProposedChange& change, const Cluster& cluster) {
  experiment::ExperimentOptions changed = options;
  try {
    experiment::experiment_schema().assign_all(&changed, change.options);
    const Cluster other =
        change.ranks > 0 ? with_ranks(cluster, static_cast<int64_t>(change.ranks)) : cluster;
    const PlannedModel model(changed, changed.seq_length, cluster.machine);
    return predict(model, changed, other).memory.peak;
  } catch (const UsageError&) {
    return {};
  }
}

}  // namespace

std::vector<records::Saving> verified_savings(const experiment::ExperimentOptions& options,
                                              const Prediction& prediction,
                                              const Cluster& cluster) {
  analysis::HeldMemory held;
  held.options = experiment::experiment_schema().to_json(&options);
  for (size_t i = 0; i < kHolders; ++i)
    held.owners.push_back({holder_name(static_cast<Holder>(i)), prediction.memory.at_peak[i]});
  held.ranks = cluster.ranks();
  std::vector<records::Saving> list;
  for (analysis::ProposedChange& change : analysis::proposed_changes(held)) {
    if (change.ranks > 0 && change.ranks != cluster.ranks() && !cluster.machine.is_gpu) continue;
    const auto peak = peak_with(options, change, cluster);
    if (!peak || prediction.memory.peak - *peak < kWorthSaying * prediction.memory.peak) continue;
    change.saving.bytes = std::floor(prediction.memory.peak - *peak);
    list.push_back(std::move(change.saving));
  }
  std::ranges::stable_sort(list, std::ranges::greater{}, &records::Saving::bytes);
  return list;
}

}  // namespace moonshard::plan
