// The forward process of denoising diffusion (Ho et al., "Denoising Diffusion Probabilistic
// Models", 2020): 1000 steps whose variance grows linearly from 1e-4 to 0.02.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::models {

inline constexpr int64_t kDiffusionSteps = 1000;

/// Share of the image's variance that is left after step t, for every t: [1000] float64 on the CPU,
/// the running product of 1 - variance.
const at::Tensor& remaining_signal();

/// sqrt(s_t) image + sqrt(1 - s_t) noise, s_t the remaining signal at each sample's own timestep.
/// images and noise [B, C, H, W] of one dtype, timesteps [B] int64 from 0 to 999.
at::Tensor add_diffusion_noise(const at::Tensor& images, const at::Tensor& noise,
                               const at::Tensor& timesteps);

}  // namespace moonshard::models
