// clipped_sum, noise and optimizer in one pass: the gradient of a linear layer's weight is updated
// from while its tiles are in registers, and never stored. fused_update (its parts with a product)
// uses it wherever it can; numbers are those of clipped_sum and fused_update one after the other,
// up to the order of sums: both add float32 in the same tiles, so that they agree to the last bits.
//
// Only on Hopper, for operands that clipped_sum's kernel takes, weights whose rows have a multiple
// of kClippedUpdateColumns columns, and noise under a secret key.
#pragma once

#include <vector>

#include "kernels/clipped_update/clipped_update_launch.h"
#include "kernels/common/sample_problem.h"

namespace moonshard::kernels {

/// Whether the kernel takes the layer, for an update of the right kind (clipped_update_takes).
bool clipped_update_supports(const SampleProblem& problem);

/// Of formats, rule and noise alone.
bool clipped_update_takes(const RawUpdateRule& rule);

/// Whether it is worth it for these layers together: there are tiles for all multiprocessors, and
/// positions to sum over for so long that noise and update are hidden behind the products.
bool clipped_update_pays(const std::vector<SampleProblem>& problems);

}  // namespace moonshard::kernels
