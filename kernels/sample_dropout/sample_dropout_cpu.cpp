#include "kernels/sample_dropout/sample_dropout_cpu.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/host_threads.h"

namespace moonshard::kernels {
namespace {

constexpr int64_t kTile = 1024, kTilesOfPiece = 64;

// Coins of a tile first: the loops behind them are vector code.
MS_HOST_VECTORS void draw_coins(const RawDropout& p, int64_t sample, int64_t first,
                                int16_t (&coins)[kTile]) {
  uint64_t words[kTile / kCoinsOfWord];
  const uint64_t origin = static_cast<uint64_t>(p.words[sample]) + p.stream +
                          static_cast<uint64_t>(first / kCoinsOfWord) * kMixStride;
#pragma GCC ivdep
  for (int64_t i = 0; i < kTile / kCoinsOfWord; ++i)
    words[i] = mixed_word(origin + static_cast<uint64_t>(i) * kMixStride);
  std::memcpy(coins, words, sizeof words);
}

template <class T, bool kAdds>
MS_HOST_VECTORS void drop_tile(const T* from, T* to, const int16_t* coins, int lowest, T scale,
                               int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const T kept = from[i] * (coins[i] >= lowest ? scale : T(0));
    to[i] = kAdds ? to[i] + kept : kept;
  }
}

template <class T>
void drop_on_host(const RawDropout& p) {
  const T* from = static_cast<const T*>(p.from);
  T* to = static_cast<T*>(p.to);
  const T scale = static_cast<T>(p.scale);
  const int64_t tiles = (p.numbers + kTile - 1) / kTile;
  const int64_t pieces = (p.samples * tiles + kTilesOfPiece - 1) / kTilesOfPiece;
  share_pieces(pieces, [&](int64_t piece) {
    int16_t coins[kTile];
    const int64_t end = std::min(p.samples * tiles, (piece + 1) * kTilesOfPiece);
    for (int64_t tile = piece * kTilesOfPiece; tile < end; ++tile) {
      const int64_t sample = tile / tiles, first = tile % tiles * kTile;
      draw_coins(p, sample, first, coins);
      const int64_t count = std::min(kTile, p.numbers - first), at = sample * p.numbers + first;
      (p.adds ? drop_tile<T, true> : drop_tile<T, false>)(from + at, to + at, coins, p.lowest,
                                                          scale, count);
    }
  });
}

}  // namespace

bool sample_dropout_cpu(const RawDropout& p, c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      drop_on_host<float>(p);
      return true;
    case c10::ScalarType::Double:
      drop_on_host<double>(p);
      return true;
    case c10::ScalarType::BFloat16:
      drop_on_host<c10::BFloat16>(p);
      return true;
    default:
      return false;
  }
}

}  // namespace moonshard::kernels
