// What the predictions of a search have in common: what an engine does with a model's layers, and
// what its stretches cost, by batch and mode. Most candidates differ in wrappers, units and
// checkpointing alone. Of one machine, for one thread. Torch-free.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "runtime/plan/engine_ways.h"
#include "runtime/plan/step_costs.h"

namespace moonshard::plan {

class SharedCosts {
 public:
  explicit SharedCosts(const MachineProfile& machine) : machine_(machine) {}

  /// Both stay where they are.
  const EngineWays& ways(const PlannedModel& model, const EngineSituation& situation);
  const StepCosts& costs(const PlannedModel& model, const EngineWays& ways, int64_t samples,
                         bool casts, bool in_graph);

 private:
  using WaysKey = std::tuple<const PlannedModel*, EngineSituation>;
  using CostsKey = std::tuple<const PlannedModel*, const EngineWays*, int64_t, bool, bool>;

  const MachineProfile& machine_;
  std::map<WaysKey, std::unique_ptr<const EngineWays>> ways_;
  std::map<CostsKey, std::unique_ptr<const StepCosts>> costs_;
};

}  // namespace moonshard::plan
