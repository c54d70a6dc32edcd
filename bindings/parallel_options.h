// Reads the tables of ms.fsdp and ms.ddp back for ms.trainer.
#pragma once

#include "runtime/sharding/sharding_options.h"

namespace moonshard::bindings {

sharding::ShardingOptions read_sharding_options(const Json& table);

}  // namespace moonshard::bindings
