// Gaussian noise hardened against floating-point attacks. Plain floating-point normals leak:
// not every number can come out of "value + noise", and which ones can depends on the value
// (Mironov 2012; Jin et al. 2021 for DP-SGD). Here
//   - words come from ChaCha20 under a 256-bit key of the operating system's generator: no state to
//     recover from some of the noise, as there is with Philox and a known seed;
//   - a normal is the half sum of four Box-Muller normals in double, each from 53-bit uniforms
//     (Holohan and Braghin 2021): an attacker must guess all of them at once;
//   - the sum of value and noise, in double, is rounded to a grid of about std x 2^-20: any number
//     on it can come from any value nearby, and lower bits carry no information. A float32 holds
//     such numbers exactly up to 16 std. Rounding is post-processing, so it costs no privacy; it
//     adds a variance of 8e-14 std^2.
// Elements are addressed as in counter_noise: a shard draws only its own.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/secure_noise/secure_noise_launch.h"

namespace moonshard::kernels {

/// target = round(target + std * z), z the normals first_element, first_element+1, … of the stream.
/// float32 or double, contiguous, CPU or CUDA (on the current stream of its device); std > 0.
void add_secure_noise(at::Tensor& target, double std, const SecureStream& stream,
                      int64_t first_element = 0);

/// The definition of correct, and what runs on the CPU.
void add_secure_noise_ref(at::Tensor& target, double std, const SecureStream& stream,
                          int64_t first_element);

}  // namespace moonshard::kernels
