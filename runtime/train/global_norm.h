// Clipping of plain training: the norm of the mean gradient over all parameters and ranks.
#pragma once

#include "runtime/comm/world.h"
#include "runtime/sharding/parallel.h"

namespace moonshard::train {

/// Root of the sum of squares of all gradients in parallel.updated(), which must be complete.
/// `spread`: every rank has other parts of them, else all have the same. All ranks together; the
/// same number on each. Waits for the device.
double global_norm(const sharding::Parallel& parallel, comm::World& world, bool spread);

}  // namespace moonshard::train
