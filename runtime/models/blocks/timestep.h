// The time of a diffusion step as a vector: cosines and sines of geometrically falling frequencies,
// the input of a small MLP.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::models {

inline constexpr int64_t kTimestepFrequencies = 256;

/// timesteps [B] -> [B, 256]: cosines, then sines, of t * 10000^(-i / 128), in `type`.
at::Tensor timestep_features(const at::Tensor& timesteps, at::ScalarType type);

}  // namespace moonshard::models
