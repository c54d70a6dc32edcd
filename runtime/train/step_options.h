// Options of a training step. Torch-free.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/options.h"

namespace moonshard::train {

struct StepOptions {
  int64_t grad_accum = 1;
  int64_t expected_batch_size = 0;
  double clip_global_norm = 0;
  bool deterministic = false;
  std::string compile = "auto";
};

template <class T>
void add_step_options(OptionSchema& schema) {
  schema.integer<T>("grad_accum", &T::grad_accum, 1, 1e6,
                    "micro-batches per step, each of batch_size samples");
  schema.integer<T>("expected_batch_size", &T::expected_batch_size, 0, 1e12,
                    "what the sum is divided by; 0 takes the samples of the step");
  schema.real<T>(
      "clip_global_norm", &T::clip_global_norm, 0, 1e12,
      "plain training: the mean gradient of a step is scaled down to this norm, over all "
      "parameters and ranks; 0: not");
  schema.boolean<T>("deterministic", &T::deterministic,
                    "only operations that give the same digits every time");
  schema.yes_or_no<T>(
      "compile", &T::compile,
      "on a GPU: replay steps of equal shapes as CUDA graphs, noise and optimizer "
      "apart; auto does so where launching kernels takes 70 % of a step, or 40 % of it "
      "and replays are faster");
}

}  // namespace moonshard::train
