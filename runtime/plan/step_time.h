// The time of a step: its operations on the streams that really carry them out (host, compute,
// communication, copies), in the order of the training, which sharding/unit_order.h decides. Every
// stream works its operations off in order; an operation starts when its stream is free, the host
// has issued it and what it waits for is there. Ranks are simulated side by side (program_run.h): a
// collective starts when the last of them has come. Torch-free.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/plan/engine_ways.h"
#include "runtime/plan/link_traffic.h"
#include "runtime/plan/machine_profile.h"
#include "runtime/plan/planned_model.h"
#include "runtime/plan/shared_costs.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::plan {

struct TimeSituation {
  int64_t samples = 1;  ///< of a micro-batch
  int64_t grad_accum = 1;
  int ranks = 1;
  int states = 0;
  int state_bytes = 0;  ///< of one of them; 0: as many as a weight has
  std::string checkpointing = "none";
  int64_t checkpoint_every = 1;
  bool graph = false;  ///< launches cost the host nothing
  /// Of the host's time, in the steps that decide whether there is a graph (TimePlan::host_share).
  double first_steps = 1;
  bool noise = true;  ///< drawn in the update
  Topology topology;
  size_t collectives_at_once = 1;  ///< of a group, on one of its streams
  /// How much slower than the machine each rank computes: all ranks are then simulated. Empty: they
  /// are equal, and one stands for all.
  std::vector<double> slowness;
  /// Every operation on the device takes exp(jitter * z) of its time, z standard normal, by rank,
  /// operation and seed.
  double jitter = 0;
  uint64_t seed = 0;
};

/// Of one simulated rank.
struct RankTime {
  double step_ms = 0, communication_ms = 0, exposed_ms = 0;
};

struct TraceSpan {
  int rank = 0;
  const char* lane = "compute";
  std::string name;
  double begin_ms = 0, end_ms = 0;
};

/// All collectives of one kind, of the first rank.
struct CollectiveTime {
  std::string operation;
  double count = 0, bytes = 0, work_ms = 0, exposed_ms = 0;
};

struct TimePlan {
  double step_ms = 0;
  std::vector<std::pair<std::string, double>> phases_ms;  ///< in the order of the step
  double communication_ms = 0, exposed_ms = 0;            ///< of the first rank
  double copies_exposed_ms = 0;  ///< the device waits for parts that come from the host
  double compute_ms = 0;         ///< without waits
  double host_ms = 0;            ///< of launches
  /// Of the time until all micro-batches have run: when the host has launched them. It is no more
  /// than a queue of kernels ahead of the device.
  double host_share = 0;
  std::vector<RankTime> ranks;  ///< that were simulated
  std::vector<CollectiveTime> collectives;
};

/// Standard normal number of a seed and two places; the same on every machine.
double standard_normal(uint64_t seed, uint64_t first, uint64_t second);

/// With `trace`, every operation of every simulated rank is added to it.
TimePlan simulate_step(const PlannedModel& model, const StepWays& ways, SharedCosts& shared,
                       const sharding::ShardingOptions& sharding, const TimeSituation& situation,
                       const MachineProfile& machine, std::vector<TraceSpan>* trace = nullptr);

}  // namespace moonshard::plan
