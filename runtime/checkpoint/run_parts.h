// What saving and resuming both ask of a trainer.
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
/// Until the device has done everything that was asked of it, on any stream.
void finish_device_work(const models::Model& model);
/// All of an index but what ranks say of their files.
CheckpointIndex index_of(const train::Trainer& trainer, const std::string& id);

}  // namespace moonshard::checkpoint
