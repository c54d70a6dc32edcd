// What a configuration will need on a cluster, before anything runs: memory of a rank by owner, the
// step's time by phase, throughput. One configuration costs microseconds once its model's shapes
// are known (planned_model.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/experiment/experiment_options.h"
#include "runtime/plan/machine_profile.h"
#include "runtime/plan/memory_walk.h"
#include "runtime/plan/planned_model.h"
#include "runtime/plan/step_time.h"

namespace moonshard::plan {

/// Ranks that are not alike. Which are slow, and by how much each operation differs, follows from
/// the seed; all ranks are then simulated.
struct Stragglers {
  int64_t slow_ranks = 0;
  double slow_by = 0.2;  ///< how much longer they compute: 0.2 is a fifth
  double jitter = 0;     ///< of every operation (step_time.h)
  uint64_t seed = 0;

  bool any() const { return slow_ranks > 0 || jitter > 0; }
};

struct Cluster {
  MachineProfile machine;
  int64_t gpus = 1;  ///< of a node; on CPUs the ranks of a machine
  int64_t nodes = 1;
  std::string link = "nvlink";                         ///< inside of a node
  std::string node_link = "infiniband";                ///< between nodes, per network adapter
  LinkRate given_link{0, -1}, given_node_link{0, -1};  ///< from 0 on, instead of the names' own
  double nics = 0;                                     ///< adapters of a node; 0: one per GPU
  double memory_bytes = 0;                             ///< that a rank may use; 0: the device's
  double host_bytes = 0;                               ///< of a GPU node's host; 0: enough
  bool shares_host = false;      ///< the machine's rates of its host are a part of a node's
  std::vector<double> slowness;  ///< of each rank (step_time.h), if not by stragglers
  Stragglers stragglers;

  int ranks() const { return static_cast<int>(gpus * nodes); }
  double memory_limit() const { return memory_bytes > 0 ? memory_bytes : machine.memory_bytes; }
};

struct Prediction {
  MemoryPlan memory;
  TimePlan time;
  EngineWays ways;     ///< of the last micro-batch; empty where costs are shared
  bool graph = false;  ///< steps are replayed as a CUDA graph
  bool two_passes = false;
  bool fits = false;                  ///< in the cluster's memory, with `most_bytes`
  bool host_fits = true;              ///< what a node's ranks keep on their host
  double most_bytes = 0;              ///< the peak, whatever engine auto or compile = auto choose
  double needed_bytes = 0;            ///< with what the allocator cannot use of its memory
  Spread time_spread, memory_spread;  ///< of steps like it that were measured; zeros: none were
  double tokens_per_s = 0, samples_per_s = 0;  ///< of all ranks
  int64_t tokens_per_sample = 0;
  double mfu_percent = 0;  ///< of the fastest product that the profile has
};

/// Resolved options. Throws UsageError for a world that they cannot run in. `shared`: of the
/// cluster's machine, where there are many predictions.
Prediction predict(const PlannedModel& model, const experiment::ExperimentOptions& options,
                   const Cluster& cluster, std::vector<TraceSpan>* trace = nullptr,
                   SharedCosts* shared = nullptr);

/// Names as in records: memory.breakdown, time.phases_ms.
Json to_json(const Prediction& prediction);

/// A prediction as text of one line: "41.2 GiB of 139.0, 185.3 ms".
std::string summary(const Prediction& prediction, double limit);

/// The link of that name in comm/links.h; throws UsageError with the known ones.
LinkRate link_rate(const std::string& name);

}  // namespace moonshard::plan
