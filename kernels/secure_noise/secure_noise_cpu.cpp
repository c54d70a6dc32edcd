// The CPU's fast path: the reference's arithmetic on the 32 blocks of a tile side by side, in plain
// loops that the compiler turns into vector code.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/secure_noise/secure_noise.h"
#include "kernels/secure_noise/secure_noise_math.h"

namespace moonshard::kernels {
namespace {

constexpr int64_t kPiece = 16 * kTileElements;  // what a thread takes at a time

struct TileWords {
  uint32_t word[16][kTileBlocks];

  TileWords(const SecureStream& stream, uint64_t first_block) {
    const ChaChaWords start = chacha_start(stream.key, first_block, stream.step, stream.parameter);
    uint32_t begin[16][kTileBlocks];
    for (int w = 0; w < 16; ++w)
      for (int64_t b = 0; b < kTileBlocks; ++b) begin[w][b] = start.word[w];
    // A tile begins at a multiple of 32 blocks: the counter's low word does not overflow in it.
    for (int64_t b = 0; b < kTileBlocks; ++b) begin[12][b] += static_cast<uint32_t>(b);
    std::copy(&begin[0][0], &begin[0][0] + 16 * kTileBlocks, &word[0][0]);
    for (int twice = 0; twice < kNoiseRounds / 2; ++twice) {
      for (int column = 0; column < 4; ++column)
        quarter(column, 4 + column, 8 + column, 12 + column);
      for (int column = 0; column < 4; ++column)
        quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4);
    }
    for (int w = 0; w < 16; ++w)
      for (int64_t b = 0; b < kTileBlocks; ++b) word[w][b] += begin[w][b];
  }

  void quarter(int a, int b, int c, int d) {
    for (int64_t i = 0; i < kTileBlocks; ++i)
      chacha_quarter(word[a][i], word[b][i], word[c][i], word[d][i]);
  }
};

struct TileNormals {
  float radius[kTileElements], factor[kTileElements];  ///< a normal is their product
};

void draw_tile(const SecureStream& stream, int64_t tile, float std, TileNormals& normals) {
  const auto first_block = static_cast<uint64_t>(tile * kTileBlocks);
  const TileWords words(stream, first_block);
  float radius[kTileBlocks], cosine[kTileBlocks], sine[kTileBlocks];
  for (int even = 0; even < 16; even += 2) {
    bool has_tail = false;
    for (int64_t b = 0; b < kTileBlocks; ++b) {
      radius[b] = radius_of_word(words.word[even][b]);
      const SineCosine angle = turn_of_word(words.word[even + 1][b]);
      cosine[b] = angle.cosine;
      sine[b] = angle.sine;
      has_tail |= words.word[even][b] < kTailWord;
    }
    for (int64_t b = 0; has_tail && b < kTileBlocks; ++b) {
      if (words.word[even][b] < kTailWord)
        radius[b] =
            tail_radius(words.word[even][b], stream.key, first_block + static_cast<uint64_t>(b),
                        stream.step, stream.parameter, even);
    }
    float* radii = normals.radius + even / 4 * kTileRow + even % 4;
    float* factors = normals.factor + even / 4 * kTileRow + even % 4;
    for (int64_t b = 0; b < kTileBlocks; ++b) {
      radii[4 * b] = radii[4 * b + 1] = std * radius[b];
      factors[4 * b] = cosine[b];
      factors[4 * b + 1] = sine[b];
    }
  }
}

template <class T>
void add_piece(T* data, int64_t count, float std, T grid, const SecureStream& stream,
               int64_t first) {
  TileNormals normals;
  const T inverse_grid = T(1) / grid;
  for (int64_t done = 0; done < count;) {
    const int64_t element = first + done, skip = element % kTileElements;
    const int64_t here = std::min(kTileElements - skip, count - done);
    draw_tile(stream, element / kTileElements, std, normals);
    for (int64_t i = 0; i < here; ++i) {
      const auto sum = static_cast<T>(static_cast<double>(data[done + i]) +
                                      static_cast<double>(normals.radius[skip + i]) *
                                          static_cast<double>(normals.factor[skip + i]));
      data[done + i] = on_grid(sum, grid, inverse_grid);
    }
    done += here;
  }
}

}  // namespace

void add_secure_noise_cpu(at::Tensor& target, double std, const SecureStream& stream,
                          int64_t first_element) {
  AT_DISPATCH_FLOATING_TYPES(target.scalar_type(), "add_secure_noise_cpu", [&] {
    scalar_t* data = target.data_ptr<scalar_t>();
    at::parallel_for(0, target.numel(), kPiece, [&](int64_t begin, int64_t end) {
      add_piece(data + begin, end - begin, float_at_least(std),
                static_cast<scalar_t>(secure_grid(std)), stream, first_element + begin);
    });
  });
}

}  // namespace moonshard::kernels
