// What the parts of a step hand on to its end. For the sources of this folder.
#pragma once

#include <optional>
#include <vector>

#include "runtime/train/step_update.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {

struct Trainer::Progress {
  StepReport report;
  int64_t samples = 0;  ///< of this rank so far
  int64_t denominator = 0;
  std::vector<at::Tensor> losses, norms, factors;
  std::optional<StepUpdate> update;
  bool replayed = false;           ///< by a graph, whose memory has the gradients
  int64_t replayed_gradients = 0;  ///< bytes of them
};

}  // namespace moonshard::train
