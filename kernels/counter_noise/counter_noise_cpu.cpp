// The CPU's fast path: the reference's arithmetic on 64 counters side by side, in plain loops that
// the compiler turns into vector code.
#include "kernels/counter_noise/counter_noise_cpu.h"

#include <ATen/Dispatch.h>

#include <algorithm>

#include "kernels/common/host_threads.h"
#include "kernels/counter_noise/counter_noise.h"
#include "kernels/counter_noise/counter_noise_math.h"

namespace moonshard::kernels {
namespace {

constexpr int64_t kPiece = 128 * kCounterGranule;  // what a thread takes at a time

// philox4x32_10 for many counters: the same rounds, word by word.
struct CounterWords {
  uint32_t word[4][kCounterBlocks];

  CounterWords(uint64_t first_block, const NoiseStream& stream) {
    for (int64_t i = 0; i < kCounterBlocks; ++i) {
      const uint64_t block = first_block + static_cast<uint64_t>(i);
      word[0][i] = static_cast<uint32_t>(block);
      word[1][i] = static_cast<uint32_t>(block >> 32);
      word[2][i] = stream.step;
      word[3][i] = stream.parameter;
    }
    auto key_low = static_cast<uint32_t>(stream.key);
    auto key_high = static_cast<uint32_t>(stream.key >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int64_t i = 0; i < kCounterBlocks; ++i) {
        const uint64_t product_0 = uint64_t{0xD2511F53u} * word[0][i];
        const uint64_t product_1 = uint64_t{0xCD9E8D57u} * word[2][i];
        const uint32_t mixed_0 = static_cast<uint32_t>(product_1 >> 32) ^ word[1][i] ^ key_low;
        const uint32_t mixed_2 = static_cast<uint32_t>(product_0 >> 32) ^ word[3][i] ^ key_high;
        word[0][i] = mixed_0;
        word[1][i] = static_cast<uint32_t>(product_1);
        word[2][i] = mixed_2;
        word[3][i] = static_cast<uint32_t>(product_0);
      }
      key_low += 0x9E3779B9u;
      key_high += 0xBB67AE85u;
    }
  }
};

}  // namespace

// A granule begins at a multiple of the lanes: a number depends only on its index in the stream,
// not on where a shard begins.
MS_HOST_VECTORS void draw_counter_granule(const NoiseStream& stream, int64_t granule,
                                          float* normals) {
  const CounterWords words(static_cast<uint64_t>(granule * kCounterBlocks), stream);
  for (int64_t i = 0; i < kCounterBlocks; ++i) {
    const float radius_0 = radius_of_word(words.word[0][i]);
    const float radius_1 = radius_of_word(words.word[2][i]);
    const SineCosine turn_0 = turn(uniform_open(words.word[1][i]));
    const SineCosine turn_1 = turn(uniform_open(words.word[3][i]));
    normals[4 * i] = radius_0 * turn_0.cosine;
    normals[4 * i + 1] = radius_0 * turn_0.sine;
    normals[4 * i + 2] = radius_1 * turn_1.cosine;
    normals[4 * i + 3] = radius_1 * turn_1.sine;
  }
}

void add_counter_noise_cpu(at::Tensor& target, double std, const NoiseStream& stream,
                           int64_t first_element) {
  const int64_t count = target.numel();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, target.scalar_type(),
                                  "add_counter_noise_cpu", [&] {
                                    scalar_t* data = target.data_ptr<scalar_t>();
                                    share_pieces((count + kPiece - 1) / kPiece, [&](int64_t piece) {
                                      const int64_t from = piece * kPiece;
                                      add_counter_range(data + from, std::min(kPiece, count - from),
                                                        std, stream, first_element + from);
                                    });
                                  });
}

}  // namespace moonshard::kernels
