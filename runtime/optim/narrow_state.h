// Optimizer states in bfloat16 (option state_dtype): half of the memory. Updates are computed in
// float32, slice by slice, and what is kept is rounded by a coin.
//
// Note: why a coin. bfloat16 has 8 significant bits. A mean square moves by 1 - beta2 of its
// distance in a step, 0.1 % to 5 % of itself: mostly less than half of the gap to the next number,
// so that rounding to the nearest leaves it where it is, for ever. Rounding up with the probability
// of the distance covered is right on average: the state follows, with a spread of about one gap.
// Coins are a function of (key, step, parameter, element): a run repeats, for any number of ranks.
#pragma once

#include <vector>

#include "kernels/fused_update/fused_update.h"

namespace moonshard::optim {

/// kernels::fused_update of parts whose moments are in bfloat16. Holds some MiB of float32 moments
/// at a time.
void update_narrow_states(const std::vector<kernels::UpdatePart>& parts,
                          const kernels::UpdateRule& rule, const kernels::UpdateNoise& noise);

}  // namespace moonshard::optim
