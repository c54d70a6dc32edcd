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
  double launches = 0;   ///< of the host, in layers
};

struct StepCosts {
  StretchCost before, block, behind;
  const StretchCost& of(size_t stretch, size_t count) const {
    return stretch == 0 ? before : stretch + 1 == count ? behind : block;
  }
};

/// `casts`: weights are cast to the compute dtype at each use, as there is no wrapper that keeps
/// them in halves.
StepCosts step_costs(const PlannedModel& model, const EngineWays& ways, int64_t samples, bool casts,
                     const MachineProfile& machine);

/// Seconds of the optimizer's pass over so many elements: values, gradients (or kept rows of
/// `row_bytes` per element), state and noise.
double update_seconds(const PlannedModel& model, const MachineProfile& machine, double elements,
                      int states, int state_bytes, double row_bytes, bool noise);

}  // namespace moonshard::plan
