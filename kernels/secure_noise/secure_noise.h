// The Gaussian noise of private training: element i of stream s under a secret key is a pure
// function of (key, s, i), so that a shard draws only its own elements. Plain floating-point
// normals leak: not every number can come out of "value + noise", and which ones can depends on the
// value (Mironov 2012; Jin et al. 2021 for DP-SGD). Here
//   - words come from ChaCha with 8 rounds under a 256-bit key of the operating system's generator:
//   seen
//     noise reveals neither the key nor other noise, as it would with Philox and a known seed;
//   - normals are float32 by Box-Muller, a 32-bit word each, in the tail 32 bits more;
//   - the sum of value and noise is formed from the exact product of radius and cosine with one
//     rounding, then rounded to a grid of about std x 2^-6: whatever the value's low bits are, a
//     cell collects the same share of all pairs of words to about 2^-27. Rounding is
//     post-processing, so it costs no privacy; it adds 2e-5 of the noise's variance.
//     docs/privacy.md has the argument.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/secure_noise/secure_noise_launch.h"

namespace moonshard::kernels {

/// target = round(target + std * z), z the normals first_element, first_element+1, … of the stream.
/// float32 or double, contiguous, CPU or CUDA (on the current stream of its device); std > 0.
void add_secure_noise(at::Tensor& target, double std, const SecureStream& stream,
                      int64_t first_element = 0);

/// The definition of correct: plain loops on the CPU.
void add_secure_noise_ref(at::Tensor& target, double std, const SecureStream& stream,
                          int64_t first_element);

/// What add_secure_noise does on the CPU.
void add_secure_noise_cpu(at::Tensor& target, double std, const SecureStream& stream,
                          int64_t first_element);

}  // namespace moonshard::kernels
