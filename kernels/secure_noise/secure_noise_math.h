// From counter to two normals, and the grid: what the reference and the kernel share.
#pragma once

#include <cmath>

#include "kernels/secure_noise/secure_noise_launch.h"

namespace moonshard::kernels {

struct TwoNormals {
  double value[2];
};

/// Uniform in (0, 1), never 0 or 1.
MS_HOST_DEVICE double wide_uniform(uint32_t low, uint32_t high) {
  const uint64_t bits = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<double>(bits >> 11) * 0x1p-53 + 0x1p-54;
}

// The sum of both normals of a Box-Muller pair: radius x (cosine + sine).
MS_HOST_DEVICE double box_muller_sum(const uint32_t* words) {
  const double radius = sqrt(-2.0 * log(wide_uniform(words[0], words[1])));
  const double turn = wide_uniform(words[2], words[3]);
#if defined(__CUDA_ARCH__)
  double sine, cosine;
  sincospi(2.0 * turn, &sine, &cosine);
#else
  const double angle = 6.283185307179586476925 * turn;
  const double sine = sin(angle), cosine = cos(angle);
#endif
  return radius * (cosine + sine);
}

/// Normals 2*block and 2*block+1 of the stream.
MS_HOST_DEVICE TwoNormals two_secure_normals(const SecureStream& stream, uint64_t block) {
  const ChaChaWords words = chacha20(stream.key, block, stream.step, stream.parameter);
  return {{0.5 * (box_muller_sum(words.word) + box_muller_sum(words.word + 4)),
           0.5 * (box_muller_sum(words.word + 8) + box_muller_sum(words.word + 12))}};
}

/// A power of two between std x 2^-21 and std x 2^-20.
inline double secure_grid(double std) {
  return std::exp2(std::floor(std::log2(std)) - 20.0);
}

MS_HOST_DEVICE double on_grid(double value, double grid, double inverse_grid) {
  return rint(value * inverse_grid) * grid;  // powers of two: the products are exact
}

}  // namespace moonshard::kernels
