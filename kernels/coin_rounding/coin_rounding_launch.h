// Rounding of one number by a coin, shared by host and device, and the raw launcher.
#pragma once

#include <cstdint>

#include "kernels/mixed_words/mixed_word.h"

namespace moonshard::kernels {

/// A float32 number's bits as bfloat16's: the upper half, into which a coin below the weight of the
/// lower half carries.
MS_HOST_DEVICE uint16_t coin_rounded(uint32_t bits, uint64_t coin) {
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;  // NaN: a carry would make zero of it
  return static_cast<uint16_t>((bits + static_cast<uint32_t>(coin & 0xFFFF)) >> 16);
}

/// Element i of state k is rounded by bits 16 k … 16 k + 15 of mixed_word(origin + i kMixStride).
struct RawRounding {
  static constexpr int kMostStates = 4;
  const uint32_t* from[kMostStates] = {};  ///< float32
  uint16_t* to[kMostStates] = {};          ///< bfloat16
  int states = 0;
  int64_t count = 0;
  uint64_t origin = 0;
};

void launch_coin_rounding(const RawRounding& rounding, void* stream);

}  // namespace moonshard::kernels
