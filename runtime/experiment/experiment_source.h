// Where the batches of an experiment come from.
#pragma once

#include <memory>

#include "runtime/comm/world.h"
#include "runtime/data/source.h"
#include "runtime/experiment/experiment_options.h"

namespace moonshard::experiment {

/// Synthetic batches, or samples of the folder or file that the options name. The first step's
/// batches are drawn at once, before there is a model.
std::unique_ptr<data::Source> make_source(const ExperimentOptions& options, comm::World& world);

}  // namespace moonshard::experiment
