// The same check for a model and a trainer that a script puts together: refused before they are
// made, with advice; and the advice again, with measured figures, where a step runs out of memory.
#pragma once

#include <string>

#include "runtime/base/errors.h"
#include "runtime/plan/fit_check.h"
#include "runtime/profile/out_of_memory.h"
#include "runtime/train/trainer.h"

namespace moonshard::plan {

/// Samples of a micro-batch and tokens of a sample, as a source gives them.
struct BatchShape {
  int64_t batch_size = 0, seq_length = 0;
};
/// Of a data set's samples in batches of that size.
BatchShape shape_of_samples(const data::Dataset& dataset, int64_t batch_size);
BatchShape shape_of_batch(const Batch& batch);

/// What a trainer's step is like, as options of an experiment. A batch size of 0: not known, and
/// only what is held from step to step can be said to be too much.
experiment::ExperimentOptions options_of_parts(const train::TrainerParts& parts,
                                               const BatchShape& shape);

/// Throws OutOfMemoryError with what is missing and what would help, and warns of what may not fit.
/// The model's weights may be in memory already.
void refuse_trainer_that_cannot_fit(const train::TrainerParts& parts, const BatchShape& shape);

/// The same for a model alone, whose weights are more than the host has free: resolved options. A
/// GPU's allocator refuses by itself.
void refuse_model_that_cannot_fit(const models::ModelOptions& options);

/// Around a step, for a report of what was held when memory ran out in it.
class StepMemoryWatch {
 public:
  explicit StepMemoryWatch(c10::Device device);
  /// Throws the error again with what was held and asked for, and advice from the predicted owners
  /// of what was held.
  [[noreturn]] void rethrow(const OutOfMemoryError& error,
                            const experiment::ExperimentOptions& options, int ranks) const;

 private:
  c10::Device device_;
  double held_ = 0;  ///< bytes, at that moment
  profile::OutOfMemoryWatch watch_;
};

}  // namespace moonshard::plan
