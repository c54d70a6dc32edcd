// The CPU's fast path: the reference's arithmetic on the 32 blocks of a tile side by side, in plain
// loops that the compiler turns into vector code. Normals stay in registers: words in, sums out.
#include "kernels/secure_noise/secure_noise_cpu.h"

#include <ATen/Dispatch.h>

#include <algorithm>

#include "kernels/common/host_threads.h"
#include "kernels/secure_noise/secure_noise.h"

namespace moonshard::kernels {
namespace {

constexpr int64_t kNoisePieceTiles = 64;  // what a thread takes at a time

// A row is a state word of all 32 blocks.
using TileRow = uint32_t[kTileBlocks];

inline void tile_quarter(TileRow& a, TileRow& b, TileRow& c, TileRow& d) {
  for (int64_t i = 0; i < kTileBlocks; ++i) chacha_quarter(a[i], b[i], c[i], d[i]);
}

inline void draw_words(TileRow (&word)[16], const SecureStream& stream, int64_t tile) {
  const auto first_block = static_cast<uint64_t>(tile * kTileBlocks);
  const ChaChaWords start = chacha_start(stream.key, first_block, stream.step, stream.parameter);
  // A tile begins at a multiple of 32 blocks: the counter's low word does not overflow in it.
  TileRow counters;
  for (int64_t b = 0; b < kTileBlocks; ++b) counters[b] = start.word[12] + static_cast<uint32_t>(b);
  for (int w = 0; w < 16; ++w)
    for (int64_t b = 0; b < kTileBlocks; ++b) word[w][b] = w == 12 ? counters[b] : start.word[w];
  for (int twice = 0; twice < kNoiseRounds / 2; ++twice) {
    for (int k = 0; k < 4; ++k) tile_quarter(word[k], word[4 + k], word[8 + k], word[12 + k]);
    for (int k = 0; k < 4; ++k)
      tile_quarter(word[k], word[4 + (k + 1) % 4], word[8 + (k + 2) % 4], word[12 + (k + 3) % 4]);
  }
  for (int w = 0; w < 16; ++w)
    for (int64_t b = 0; b < kTileBlocks; ++b) word[w][b] += w == 12 ? counters[b] : start.word[w];
}

// Sum and noise with one rounding, then the grid. The product of two float32 is exact in double.
inline float noised(float value, float radius, float factor, float grid, float inverse_grid) {
#if defined(__FP_FAST_FMAF)
  const float sum = __builtin_fmaf(radius, factor, value);
#else
  const auto sum = static_cast<float>(static_cast<double>(value) +
                                      static_cast<double>(radius) * static_cast<double>(factor));
#endif
  return on_grid(sum, grid, inverse_grid);
}
inline double noised(double value, float radius, float factor, double grid, double inverse_grid) {
  return on_grid(value + static_cast<double>(radius) * static_cast<double>(factor), grid,
                 inverse_grid);
}

template <class T>
inline void add_tile(T* data, float std, T grid, const SecureStream& stream, int64_t tile) {
  TileRow word[16];
  draw_words(word, stream, tile);
  uint32_t smallest = ~0u;
  for (int even = 0; even < 16; even += 2)
    for (int64_t b = 0; b < kTileBlocks; ++b) smallest = std::min(smallest, word[even][b]);
  const bool has_tail = smallest < kTailWord;  // one tile of 256 has one
  T before[kTileElements];
  if (has_tail) std::copy(data, data + kTileElements, before);
  const T inverse_grid = T(1) / grid;
  for (int row = 0; row < 4; ++row) {
    T* to = data + row * kTileRow;
    const TileRow &radii_0 = word[4 * row], &turns_0 = word[4 * row + 1];
    const TileRow &radii_1 = word[4 * row + 2], &turns_1 = word[4 * row + 3];
    for (int64_t b = 0; b < kTileBlocks; ++b) {
      const float radius_0 = std * radius_of_word(radii_0[b]);
      const float radius_1 = std * radius_of_word(radii_1[b]);
      const SineCosine turn_0 = turn_of_word(turns_0[b]), turn_1 = turn_of_word(turns_1[b]);
      to[4 * b] = noised(to[4 * b], radius_0, turn_0.cosine, grid, inverse_grid);
      to[4 * b + 1] = noised(to[4 * b + 1], radius_0, turn_0.sine, grid, inverse_grid);
      to[4 * b + 2] = noised(to[4 * b + 2], radius_1, turn_1.cosine, grid, inverse_grid);
      to[4 * b + 3] = noised(to[4 * b + 3], radius_1, turn_1.sine, grid, inverse_grid);
    }
  }
  for (int even = 0; has_tail && even < 16; even += 2) {
    for (int64_t b = 0; b < kTileBlocks; ++b) {
      if (word[even][b] >= kTailWord) continue;
      const NormalPair pair = noise_pair(word[even][b], word[even + 1][b], stream.key,
                                         static_cast<uint64_t>(tile * kTileBlocks + b), stream.step,
                                         stream.parameter, even);
      const int64_t e = even / 4 * kTileRow + 4 * b + even % 4;
      data[e] = noised(before[e], std * pair.radius, pair.cosine, grid, inverse_grid);
      data[e + 1] = noised(before[e + 1], std * pair.radius, pair.sine, grid, inverse_grid);
    }
  }
}

}  // namespace

MS_HOST_VECTORS void add_secure_tile(float* data, float std, float grid, const SecureStream& stream,
                                     int64_t tile) {
  add_tile(data, std, grid, stream, tile);
}
MS_HOST_VECTORS void add_secure_tile(double* data, float std, double grid,
                                     const SecureStream& stream, int64_t tile) {
  add_tile(data, std, grid, stream, tile);
}

void add_secure_noise_cpu(at::Tensor& target, double std, const SecureStream& stream,
                          int64_t first_element) {
  const int64_t first_tile = first_element / kTileElements;
  const int64_t end = first_element + target.numel();
  const int64_t tiles = (end + kTileElements - 1) / kTileElements - first_tile;
  AT_DISPATCH_FLOATING_TYPES(target.scalar_type(), "add_secure_noise_cpu", [&] {
    scalar_t* data = target.data_ptr<scalar_t>();
    share_pieces((tiles + kNoisePieceTiles - 1) / kNoisePieceTiles, [&](int64_t piece) {
      const int64_t tile = first_tile + piece * kNoisePieceTiles;
      const int64_t from = std::max(tile * kTileElements, first_element);
      const int64_t to = std::min((tile + kNoisePieceTiles) * kTileElements, end);
      add_secure_range(data + (from - first_element), to - from, float_at_least(std),
                       static_cast<scalar_t>(secure_grid(std)), stream, from);
    });
  });
}

}  // namespace moonshard::kernels
