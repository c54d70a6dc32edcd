// A secret that all ranks of a run share and nobody writes down.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/world.h"
#include "runtime/core/random_words.h"
#include "runtime/privacy/clipping.h"
#include "runtime/sharding/parallel.h"

namespace moonshard::train {

/// Drawn from the operating system's generators of all ranks; all ranks together. Each call gives
/// another.
std::shared_ptr<const kernels::ChaChaKey> shared_secret(comm::World& world);

/// What a run's samplers draw from: its seed, or a secret of their own. All ranks together.
RandomWords sampling_words(comm::World& world, int64_t seed, bool secure);

/// Why a run with these options is not private, whatever its data; empty when it is.
std::string privacy_obstacle(const privacy::ClipOptions& clip,
                             const sharding::ShardingOptions& sharding, const comm::World& world);

}  // namespace moonshard::train
