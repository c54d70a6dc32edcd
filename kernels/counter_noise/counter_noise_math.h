// From counter to four normals: the arithmetic that the reference and the kernel share.
#pragma once

#include <cmath>

#include "kernels/common/philox.h"

namespace moonshard::kernels {

struct FourNormals {
  float value[4];
};

// A full 32-bit radius word reaches farther into the tails than uniform_open's 24 bits.
MS_HOST_DEVICE float box_muller_radius(uint32_t word) {
  const float uniform = (static_cast<float>(word) + 0.5f) * 2.3283064365386963e-10f;  // 2^-32
  return sqrtf(-2.0f * logf(uniform < 1.0f ? uniform : 0.99999994f));
}

/// Normals 4*block … 4*block+3 of stream (step, parameter) under the key.
MS_HOST_DEVICE FourNormals four_normals(uint64_t block, uint32_t step, uint32_t parameter,
                                        uint64_t key) {
  const PhiloxWords words = philox4x32_10(
      {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), step, parameter}},
      static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  constexpr float kTwoPi = 6.283185307179586f;
  const float radius_0 = box_muller_radius(words.word[0]);
  const float radius_1 = box_muller_radius(words.word[2]);
  const float angle_0 = kTwoPi * uniform_open(words.word[1]);
  const float angle_1 = kTwoPi * uniform_open(words.word[3]);
  return {{radius_0 * cosf(angle_0), radius_0 * sinf(angle_0), radius_1 * cosf(angle_1),
           radius_1 * sinf(angle_1)}};
}

}  // namespace moonshard::kernels
