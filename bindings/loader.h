// From what a script says about its data to the source of a trainer.
#pragma once

#include <memory>

#include "bindings/handles.h"
#include "runtime/comm/world.h"

namespace moonshard::bindings {

/// This rank's source. `secure`: what is drawn is drawn from a secret. `plain`: training without
/// privacy, for which an empty draw is no step.
std::unique_ptr<data::Source> open_source(const DataHandle& handle, const models::Model& model,
                                          comm::World& world, const train::StepOptions& step,
                                          bool secure, bool plain);

}  // namespace moonshard::bindings
