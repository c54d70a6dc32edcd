// Seconds that a device needs for each stretch of a model (planned_model.h), by the machine's
// rates: matrix products, attention, element-wise traffic, norms and sums of the engine.
// Torch-free.
#pragma once

#include "runtime/plan/engine_ways.h"
#include "runtime/plan/machine_profile.h"
#include "runtime/plan/planned_model.h"

namespace moonshard::plan {

struct StretchCost {
  double forward = 0;
  double attention = 0;  ///< of it
  double backward = 0;   ///< gradients of activations; without privacy also those of weights
  double norms = 0;      ///< of the engine, in backward
  double sums = 0;       ///< clipped sums, behind the backward pass or in the second
  double norm_launches = 0, sum_launches = 0;          ///< more of them, by the engine
  double forward_launches = 0, backward_launches = 0;  ///< of the host in each pass, in layers
};

using StepCosts = ByStretch<StretchCost>;

/// `casts`: weights are cast to the compute dtype at each use, as there is no wrapper that keeps
/// them in halves. `in_graph`: kernels follow each other faster.
StepCosts step_costs(const PlannedModel& model, const EngineWays& ways, int64_t samples, bool casts,
                     bool in_graph, const MachineProfile& machine);

}  // namespace moonshard::plan
