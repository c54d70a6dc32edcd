// The CPU's fast path: the reference's arithmetic on 64 counters side by side, in plain loops that
// the compiler turns into vector code.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/counter_noise/counter_noise_math.h"

namespace moonshard::kernels {
namespace {

constexpr int64_t kBlocks = 64;            // of four normals each
constexpr int64_t kGranule = 4 * kBlocks;  // normals
constexpr int64_t kPiece = 32 * kGranule;  // what a thread takes at a time

// philox4x32_10 for many counters: the same rounds, word by word.
struct Lanes {
  uint32_t word[4][kBlocks];

  Lanes(uint64_t first_block, const NoiseStream& stream) {
    for (int64_t i = 0; i < kBlocks; ++i) {
      const uint64_t block = first_block + static_cast<uint64_t>(i);
      word[0][i] = static_cast<uint32_t>(block);
      word[1][i] = static_cast<uint32_t>(block >> 32);
      word[2][i] = stream.step;
      word[3][i] = stream.parameter;
    }
    auto key_low = static_cast<uint32_t>(stream.key);
    auto key_high = static_cast<uint32_t>(stream.key >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int64_t i = 0; i < kBlocks; ++i) {
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

// The granule's normals in order. `first_block` is a multiple of the lanes: a number depends only
// on its index in the stream, not on where a shard begins.
void draw_granule(const NoiseStream& stream, uint64_t first_block, float* normals) {
  const Lanes lanes(first_block, stream);
  float half[4][kBlocks];
  for (int pair = 0; pair < 2; ++pair) {
    const uint32_t *radius_words = lanes.word[2 * pair], *angle_words = lanes.word[2 * pair + 1];
    float *cosines = half[2 * pair], *sines = half[2 * pair + 1];
    for (int64_t i = 0; i < kBlocks; ++i) {
      const float radius = radius_of_word(radius_words[i]);
      const SineCosine angle = turn(uniform_open(angle_words[i]));
      cosines[i] = radius * angle.cosine;
      sines[i] = radius * angle.sine;
    }
  }
  for (int64_t i = 0; i < kBlocks; ++i) {
    for (int lane = 0; lane < 4; ++lane) normals[4 * i + lane] = half[lane][i];
  }
}

template <class T>
void add_piece(T* data, int64_t count, double std, const NoiseStream& stream, int64_t first) {
  float normals[kGranule];
  for (int64_t done = 0; done < count;) {
    const int64_t element = first + done, skip = element % kGranule;
    const int64_t here = std::min(kGranule - skip, count - done);
    draw_granule(stream, static_cast<uint64_t>((element - skip) / 4), normals);
    // Summed in double: the only rounding is the target's.
    for (int64_t i = 0; i < here; ++i) {
      data[done + i] = static_cast<T>(static_cast<double>(data[done + i]) +
                                      std * static_cast<double>(normals[skip + i]));
    }
    done += here;
  }
}

}  // namespace

void add_counter_noise_cpu(at::Tensor& target, double std, const NoiseStream& stream,
                           int64_t first_element) {
  const int64_t count = target.numel();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, target.scalar_type(), "add_counter_noise_cpu", [&] {
        scalar_t* data = target.data_ptr<scalar_t>();
        at::parallel_for(0, count, kPiece, [&](int64_t begin, int64_t end) {
          add_piece(data + begin, end - begin, std, stream, first_element + begin);
        });
      });
}

}  // namespace moonshard::kernels
