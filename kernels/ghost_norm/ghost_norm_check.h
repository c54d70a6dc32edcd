// Input checks shared by the reference and the kernels.
#pragma once

#include <vector>

#include "kernels/ghost_norm/ghost_norm.h"

namespace moonshard::kernels {

/// Throws UsageError unless there is a layer, and shapes, types and devices agree.
void check_ghost_groups(const std::vector<GhostGroup>& groups);

}  // namespace moonshard::kernels
