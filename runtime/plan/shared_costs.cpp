#include "runtime/plan/shared_costs.h"

namespace moonshard::plan {

const EngineWays& SharedCosts::ways(const PlannedModel& model, const EngineSituation& situation) {
  auto& known = ways_[{&model, situation}];
  if (known == nullptr)
    known = std::make_unique<const EngineWays>(engine_ways(model, situation, machine_));
  return *known;
}

const StepCosts& SharedCosts::costs(const PlannedModel& model, const EngineWays& ways,
                                    int64_t samples, bool casts, bool in_graph) {
  auto& known = costs_[{&model, &ways, samples, casts, in_graph}];
  if (known == nullptr) {
    known = std::make_unique<const StepCosts>(
        step_costs(model, ways, samples, casts, in_graph, machine_));
  }
  return *known;
}

}  // namespace moonshard::plan
