// Bits of a counter, mixed until they look random (SplitMix64, Steele et al. 2014); shared by host
// and device. For coins that need not be secret, and for masks whose start is one.
#pragma once

#include <cstdint>

#include "kernels/common/philox.h"  // MS_HOST_DEVICE

namespace moonshard::kernels {

/// What a counter is multiplied by before it is mixed.
constexpr uint64_t kMixStride = 0x9E3779B97F4A7C15ull;
constexpr uint64_t kMixFirst = 0xBF58476D1CE4E5B9ull, kMixSecond = 0x94D049BB133111EBull;

MS_HOST_DEVICE uint64_t mixed_word(uint64_t x) {
  x = (x ^ (x >> 30)) * kMixFirst;
  x = (x ^ (x >> 27)) * kMixSecond;
  return x ^ (x >> 31);
}

}  // namespace moonshard::kernels
