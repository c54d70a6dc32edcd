// Time of the optimizer's update, on the device or, with offload, on the host. Torch-free.
#pragma once

#include "runtime/plan/machine_profile.h"
#include "runtime/plan/planned_model.h"

namespace moonshard::plan {

/// Bytes of a state of 16 bits, which is updated in slices.
inline constexpr int kNarrowState = 2;

/// What the optimizer's pass goes over.
struct UpdatedPart {
  double elements = 0;
  double row_bytes = 0;  ///< of an element's kept rows, which are read instead of a sum; 0: a sum
  double tensors = 0;    ///< parameters
  double pieces = 0;     ///< of parameters, that this rank has
  double rows = 0;       ///< samples whose rows of small parameters are added up one by one
};

/// Seconds of the optimizer's pass: values, gradients, state and noise.
double update_seconds(const PlannedModel& model, const MachineProfile& machine,
                      const UpdatedPart& part, int states, int state_bytes, bool noise);

/// Seconds of the host's update of so many elements, with offload.
double host_update_seconds(const PlannedModel& model, const MachineProfile& machine,
                           double elements, int states);

}  // namespace moonshard::plan
