// Forward passes over a whole dataset, for evaluation: in order, every sample exactly once, without
// a graph. With several ranks each takes every N-th batch and all hold the results of all.
#pragma once

#include <functional>

#include "runtime/analysis/evaluation.h"
#include "runtime/core/batch.h"
#include "runtime/data/source.h"
#include "runtime/models/model.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {

/// Samples in order, in batches of any sizes.
struct EvaluationData {
  std::vector<int64_t> sizes;                  ///< samples of each batch
  std::function<Batch(size_t index)> batch{};  ///< on any device
};

/// A dataset in batches of so many samples. The dataset must outlive the result.
EvaluationData batches_of(const data::Dataset& dataset, int64_t batch_size);
/// The first dimension of each is at least 1.
EvaluationData batches_of(std::vector<Batch> batches);

/// What each sample gives. Where the model's parameters are in parts, use the trainer's.
analysis::EvaluatedSamples evaluate(models::Model& model, const EvaluationData& data);
/// Of the trainer's model; all ranks together, on the same data. Parameters in parts are gathered
/// unit by unit, as in a step. Throws UsageError when ranks have different data, after a failed
/// step, and in a simulated world; Interrupted.
analysis::EvaluatedSamples evaluate(Trainer& trainer, const EvaluationData& data);

}  // namespace moonshard::train
