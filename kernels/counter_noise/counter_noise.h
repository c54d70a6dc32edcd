// Gaussian numbers from a counter: element i of stream s under key k is a pure function of (k, s,
// i). Nothing is drawn in sequence, so a shard draws only its own elements, any world size gives
// the same numbers, and no number is used twice while (key, stream) pairs differ.
//
// Four normals per Philox call by two Box-Muller pairs: lanes 4j … 4j+3 come from counter j. The
// radius comes from a 32-bit word, so |z| <= 6.66; what is cut off has probability 3e-11 per draw.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/counter_noise/counter_noise_launch.h"

namespace moonshard::kernels {

/// target += std * z, z the normals first_element, first_element+1, … of the stream. Any float
/// dtype, contiguous, CPU or CUDA (on the current stream of its device).
void add_counter_noise(at::Tensor& target, double std, const NoiseStream& stream,
                       int64_t first_element = 0);

/// The definition of correct: the same on the CPU by plain loops.
void add_counter_noise_ref(at::Tensor& target, double std, const NoiseStream& stream,
                           int64_t first_element);

/// What add_counter_noise does on the CPU.
void add_counter_noise_cpu(at::Tensor& target, double std, const NoiseStream& stream,
                           int64_t first_element);

}  // namespace moonshard::kernels
