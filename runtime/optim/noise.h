// The noise of a private step on one parameter's gradient, where it is added by itself: for those
// who look at gradients, and where it comes from a secret. Else it is part of the update
// (kernels/fused_update).
#pragma once

#include "runtime/optim/optimizer.h"

namespace moonshard::optim {

/// target += std z, of the spec's stream: elements first … of the parameter, or of another purpose
/// of the step (kernels/counter_noise). Contiguous, float32 or wider. Nothing without a std.
void draw_noise(at::Tensor& target, const NoiseSpec& noise, uint32_t parameter,
                int64_t first_element = 0);

/// grad += std z for a trainable parameter, which gets a gradient if it has none; rows are summed
/// up first. In float32 or wider. Without a std only that.
void add_noise(models::Parameter& parameter, int64_t first_element, const NoiseSpec& noise);

}  // namespace moonshard::optim
