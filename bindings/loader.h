// Opens the data source that a trainer's option `data` describes.
#pragma once

#include <memory>

#include "bindings/handles.h"
#include "runtime/comm/world.h"

namespace moonshard::bindings {

/// This rank's source. `secure`: samples are drawn with the run's secret key. `plain`: training
/// without privacy, where a draw without samples is skipped.
std::unique_ptr<data::Source> open_source(const DataHandle& handle, const models::Model& model,
                                          comm::World& world, const train::StepOptions& step,
                                          bool secure, bool plain);

}  // namespace moonshard::bindings
