// What the parts of a step hand on to its end. For the sources of this folder.
#pragma once

#include <optional>
#include <vector>

#include "runtime/train/rank_statistics.h"
#include "runtime/train/step_report.h"
#include "runtime/train/step_update.h"

namespace moonshard::train {

struct StepProgress {
  StepReport report;
  int64_t samples = 0;  ///< of this rank so far
  int64_t denominator = 0;
  optim::NoiseSpec noise;                          ///< of the summed gradients, and their division
  std::vector<at::Tensor> losses, norms, factors;  ///< [B] each, by micro-batch
  LossSums sums;                                   ///< over all ranks, once they are known
  std::optional<StepUpdate> update;
  bool replayed = false;           ///< by a graph, whose memory has the gradients
  int64_t replayed_gradients = 0;  ///< bytes of them
};

}  // namespace moonshard::train
