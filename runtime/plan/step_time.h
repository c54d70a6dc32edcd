// The time of a step: its operations on the streams that really carry them out (host, compute,
// communication, copies), in the order of the training, which sharding/unit_order.h decides. Every
// stream works its operations off in order; an operation starts when its stream is free, the host
// has issued it and what it waits for is there. Ranks are simulated side by side: a collective
// starts when the last of them has come. Torch-free.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/plan/engine_ways.h"
#include "runtime/plan/machine_profile.h"
#include "runtime/plan/planned_model.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::plan {

/// Bytes per second and direction of a ring, and the least time of a collective.
struct LinkRate {
  double bytes_per_s = 0, latency_s = 0;
};

struct TimeSituation {
  int64_t samples = 1;  ///< of a micro-batch
  int64_t grad_accum = 1;
  int ranks = 1;
  int states = 0;
  std::string checkpointing = "none";
  int64_t checkpoint_every = 1;
  bool graph = false;  ///< launches cost the host nothing
  bool noise = true;   ///< drawn in the update
  LinkRate link;       ///< of ranks that hold a model together
  LinkRate copies;     ///< of those that hold the same part (HSDP)
  /// How much slower than the first each simulated rank computes; empty: one rank stands for all.
  std::vector<double> slowness;
};

struct TraceSpan {
  int rank = 0;
  const char* lane = "compute";
  std::string name;
  double begin_ms = 0, end_ms = 0;
};

struct TimePlan {
  double step_ms = 0;
  std::vector<std::pair<std::string, double>> phases_ms;  ///< in the order of the step
  double communication_ms = 0, exposed_ms = 0;            ///< of the first rank
  double compute_ms = 0;                                  ///< without waits
  double host_ms = 0;                                     ///< of launches
  double second_backward_ms = 0;
};

/// With `trace`, every operation of every simulated rank is added to it.
TimePlan simulate_step(const PlannedModel& model, const EngineWays& ways,
                       const sharding::ShardingOptions& sharding, const TimeSituation& situation,
                       const MachineProfile& machine, std::vector<TraceSpan>* trace = nullptr);

}  // namespace moonshard::plan
