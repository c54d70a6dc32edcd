// Whether a checkpoint fits a trainer: the same model, optimizer and kind of privacy.
#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_index.h"
#include "runtime/train/trainer.h"

namespace moonshard::checkpoint {

/// The options that weights depend on, by name.
Json architecture(const models::ModelOptions& options);
/// Parameters that are not trained, sorted.
std::vector<std::string> frozen_names(const models::Model& model);

/// Throws UsageError that names the first difference, and IoError where the index is damaged.
/// `where` is the checkpoint's folder. With `other_seed` the model's seed may be another.
void check_fits(const CheckpointIndex& index, const train::Trainer& trainer, bool other_seed,
                const std::string& where);

}  // namespace moonshard::checkpoint
