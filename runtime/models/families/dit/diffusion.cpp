#include "runtime/models/families/dit/diffusion.h"

#include <ATen/ATen.h>

namespace moonshard::models {

const at::Tensor& remaining_signal() {
  static const at::Tensor signal =
      (1.0 - at::linspace(1e-4, 0.02, kDiffusionSteps, at::kDouble)).cumprod(0);
  return signal;
}

at::Tensor add_diffusion_noise(const at::Tensor& images, const at::Tensor& noise,
                               const at::Tensor& timesteps) {
  const at::Tensor signal_B111 =
      remaining_signal().to(timesteps.device()).index({timesteps}).view({-1, 1, 1, 1});
  const auto type = images.scalar_type();
  return signal_B111.sqrt().to(type) * images + (1 - signal_B111).sqrt().to(type) * noise;
}

}  // namespace moonshard::models
