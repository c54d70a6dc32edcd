// What the job of an option table is made of: its data, its model, its trainer. In this order, and
// separate, because an experiment looks at the memory that each takes.
#pragma once

#include <memory>

#include "runtime/comm/world.h"
#include "runtime/data/source.h"
#include "runtime/experiment/experiment_options.h"
#include "runtime/train/trainer.h"

namespace moonshard::experiment {

/// Synthetic batches, or samples of the folder or file that the options name. The first step's
/// batches are drawn at once, before there is a model.
std::unique_ptr<data::Source> make_source(const ExperimentOptions& options, comm::World& world);

/// The options with numbers of steps: epochs say how many there are; a budget is for all of them.
ExperimentOptions planned(ExperimentOptions options, const data::Sampling& sampling);

/// Under fsdp deferred, unless the options say that it is whole first.
std::shared_ptr<models::Model> make_model(const ExperimentOptions& options);

std::unique_ptr<train::Trainer> make_trainer(const ExperimentOptions& options,
                                             std::shared_ptr<models::Model> model,
                                             std::unique_ptr<data::Source> source,
                                             const std::shared_ptr<comm::World>& world);

}  // namespace moonshard::experiment
