// Adds a private step's noise to one parameter's gradient as a separate pass: where gradients are
// observed, and where the noise comes from a secret key. Otherwise it is part of the update
// (kernels/fused_update).
#pragma once

#include "runtime/optim/optimizer.h"

namespace moonshard::optim {

/// target += std z, elements first … of the parameter's noise stream, or of another purpose of the
/// step (kernels/counter_noise). Contiguous, float32 or wider. Does nothing without a std.
void draw_noise(at::Tensor& target, const NoiseSpec& noise, uint32_t parameter,
                int64_t first_element = 0);

/// grad += std z for a trainable parameter, which gets a gradient if it has none; rows are summed
/// first. In float32 or wider. Without a std it only sums rows.
void add_noise(models::Parameter& parameter, int64_t first_element, const NoiseSpec& noise);

}  // namespace moonshard::optim
