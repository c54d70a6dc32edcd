// What a step's report says about ranks, as records and scripts show it.
#pragma once

#include "runtime/records/json.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {

/// What this rank holds: {parameter_bytes, gradient_bytes, optimizer_bytes, gathered_peak_…}.
records::Json held_by_rank(const Trainer& trainer, const StepReport& report);

/// [{operation, count, bytes}]
records::Json traffic_of(const StepReport& report);

}  // namespace moonshard::train
