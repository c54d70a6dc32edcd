// A secret that all ranks of a run share and that is never stored.
#pragma once

#include <memory>

#include "runtime/comm/world.h"
#include "runtime/core/random_words.h"

namespace moonshard::privacy {

/// Drawn from the operating system's generators of all ranks; all ranks together. Each call gives
/// another.
std::shared_ptr<const kernels::ChaChaKey> shared_secret(comm::World& world);

/// What a run's samplers draw from: its seed, or a separate secret. All ranks together.
RandomWords sampling_words(comm::World& world, int64_t seed, bool secure);

}  // namespace moonshard::privacy
