// Memory of one rank through a step, by owner: a walk over forward, backward, clipped sums and
// updates that adds what each allocates and subtracts what each frees, in the order in which the
// training does. The peak is a moment of that walk, with the owners of that moment. Torch-free.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/engine_ways.h"
#include "runtime/plan/planned_model.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::plan {

inline constexpr double kGiB = 1073741824.0;

enum class Holder {
  Parameters,
  Gathered,
  Gradients,
  OptimizerState,
  Activations,
  OutputGradients,
  EngineKept,
  EngineTemporaries,
  Communication,
  Data,
  Rest
};
inline constexpr size_t kHolders = 11;
/// The owner's name in records (profile/owner_names.h).
const char* holder_name(Holder holder);

struct MemoryPlan {
  std::array<double, kHolders> at_peak{};
  double peak = 0;
  std::string phase;  ///< in which the peak is
  double fixed = 0;   ///< parameters, optimizer state and data: there from step to step, exactly
  /// What nothing can do without: `fixed`, and the gradients that must exist at once.
  double floor = 0;
  double host = 0;  ///< with offload: parts, gradients and optimizer state in host memory
  /// Of any holder through the walk: below 0 where it let go of what it had never counted.
  double lowest = 0;
};

struct MemorySituation {
  int64_t samples = 1;  ///< of a micro-batch
  int64_t grad_accum = 1;
  int ranks = 1;
  int states = 0;       ///< numbers that the optimizer keeps per parameter
  int state_bytes = 0;  ///< of one of them; 0: as many as a weight has
  bool graph = false;   ///< forward and backward are captured: gradients stay until the end
  double context_bytes = 0;
  std::string checkpointing = "none";
  int64_t checkpoint_every = 1;
};

MemoryPlan walk_memory(const PlannedModel& model, const StepWays& ways,
                       const sharding::ShardingOptions& sharding, const MemorySituation& situation);

}  // namespace moonshard::plan
