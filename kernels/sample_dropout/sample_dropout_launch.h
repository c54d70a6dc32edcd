// Which numbers are dropped, shared by host and device, and the raw launcher.
#pragma once

#include <cstdint>

#include "kernels/common/number_format.h"
#include "kernels/mixed_words/mixed_word.h"

namespace moonshard::kernels {

constexpr int64_t kCoinsOfWord = 4, kCoinSides = 1 << 16;

struct RawDropout {
  const void* from = nullptr;        ///< [samples, numbers]
  void* to = nullptr;                ///< the same; may be `from`
  const int64_t* words = nullptr;    ///< [samples]
  int64_t samples = 0, numbers = 0;  ///< numbers of a sample
  uint64_t stream = 0;
  int lowest = 0;     ///< a coin, signed, stays from here on
  double scale = 0;   ///< rounded to the dtype
  bool adds = false;  ///< to what `to` has
  NumberFormat format = NumberFormat::Float32;
};

/// Coins of the four numbers from 4 * place on, in its 16-bit parts, the lowest first.
MS_HOST_DEVICE uint64_t dropout_coins(const RawDropout& p, int64_t sample, int64_t place) {
  return mixed_word(static_cast<uint64_t>(place) * kMixStride +
                    static_cast<uint64_t>(p.words[sample]) + p.stream);
}

MS_HOST_DEVICE bool coin_stays(const RawDropout& p, uint64_t coins, int which) {
  return static_cast<int16_t>(static_cast<uint16_t>(coins >> (16 * which))) >= p.lowest;
}

void launch_sample_dropout(const RawDropout& dropout, void* stream);

}  // namespace moonshard::kernels
