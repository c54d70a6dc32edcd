#include "runtime/models/blocks/timestep.h"

#include <ATen/ATen.h>

namespace moonshard::models {

at::Tensor timestep_features(const at::Tensor& timesteps, at::ScalarType type) {
  constexpr int64_t kHalf = kTimestepFrequencies / 2;
  // Angles in double, as those of the positions are.
  const auto wide = timesteps.options().dtype(at::kDouble);
  const at::Tensor exponent = at::arange(kHalf, wide) / static_cast<double>(kHalf);
  const at::Tensor frequency = at::pow(at::full({}, 10000.0, wide), exponent).reciprocal();
  const at::Tensor angle = at::outer(timesteps.to(at::kDouble), frequency);
  return at::cat({angle.cos(), angle.sin()}, -1).to(type);
}

}  // namespace moonshard::models
