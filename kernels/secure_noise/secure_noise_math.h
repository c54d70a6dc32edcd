// From key and counter to normals: the arithmetic that the reference, the CPU path and the kernels
// share.
//
// A ChaCha block gives sixteen words, and those sixteen normals by eight Box-Muller pairs. A tile
// of 32 blocks covers 512 elements: element e of it is word 4 (e / 128) + e % 4 of block e % 128 /
// 4, so that a warp whose threads take a block each moves whole lines of memory.
#pragma once

#include <cmath>

#include "kernels/common/normal_math.h"
#include "kernels/secure_noise/secure_noise_launch.h"

namespace moonshard::kernels {

// Of 20. The best published attack reaches 7 rounds, at 2^230 and more (docs/privacy.md).
inline constexpr int kNoiseRounds = 8;
inline constexpr int64_t kTileBlocks = 32, kTileElements = 512, kTileRow = 128;

struct NoisePlace {
  uint64_t block;
  int word;
};

MS_HOST_DEVICE NoisePlace noise_place(int64_t element) {
  const int64_t tile = element / kTileElements, inside = element % kTileElements;
  return {static_cast<uint64_t>(tile * kTileBlocks + inside % kTileRow / 4),
          static_cast<int>(inside / kTileRow * 4 + inside % 4)};
}

MS_HOST_DEVICE ChaChaWords noise_words(const ChaChaKey& key, uint64_t block, uint32_t step,
                                       uint32_t parameter) {
  return chacha<kNoiseRounds>(key, block, step, parameter);
}

/// Two normals: radius x cosine and radius x sine. They stay factors, so that a sum with their
/// product is rounded once.
struct NormalPair {
  float radius, cosine, sine;
};

// Of word x 2^-32 full turns. The GPU's own sine and cosine are within 5e-7: nothing beside the
// grid.
MS_HOST_DEVICE SineCosine noise_turn(uint32_t word) {
#if defined(__CUDA_ARCH__)
  const float angle = static_cast<float>(static_cast<int32_t>(word)) * 1.4629180792671596e-9f;
  SineCosine result;
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(result.sine) : "f"(angle));
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(result.cosine) : "f"(angle));
  return result;
#else
  return turn_of_word(word);
#endif
}

/// The radius of a word outside of the tail. The GPU's own logarithm is within 2e-7 of the true
/// one, which is not near beside a logarithm of about 0: there three terms of its series leave 2e-7
/// of it.
MS_HOST_DEVICE float noise_radius(uint32_t word) {
#if defined(__CUDA_ARCH__)
  const float uniform = static_cast<float>(word) * 0x1p-32f + 0x1p-33f;
  const float rest = 1.0f - uniform;
  float log2;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(uniform));
  const float near = rest * (2.0f + rest * (1.0f + rest * (2.0f / 3)));
  return root(rest < 0x1p-7f ? near : log2 * -1.3862943611198906f);
#else
  return radius_of_word(word);
#endif
}

/// A radius word below this gets 32 bits more: radii above 4.7 keep a fine resolution, and the
/// largest is 9.5 instead of 6.7 (beyond it lie 2^-65 of all pairs).
inline constexpr uint32_t kTailWord = 1u << 16;

/// The radius of a word in the tail. Its further bits come from blocks that no element has.
#if defined(__CUDACC__)
__device__ __host__ __noinline__
#endif
    inline float
    tail_radius(uint32_t word, const ChaChaKey& key, uint64_t block, uint32_t step,
                uint32_t parameter, int index) {
  const uint64_t apart = uint64_t{1} << 63;
  const auto more =
      static_cast<float>(noise_words(key, block | apart, step, parameter).word[index]);
  return radius_of_uniform((static_cast<float>(word) + (more + 0.5f) * 0x1p-32f) * 0x1p-32f);
}

/// `index` is even: words index and index + 1 of the block.
MS_HOST_DEVICE NormalPair noise_pair(uint32_t radius_word, uint32_t angle_word,
                                     const ChaChaKey& key, uint64_t block, uint32_t step,
                                     uint32_t parameter, int index) {
  NormalPair pair;
  pair.radius = radius_word < kTailWord
                    ? tail_radius(radius_word, key, block, step, parameter, index)
                    : noise_radius(radius_word);
  const SineCosine angle = noise_turn(angle_word);
  pair.cosine = angle.cosine;
  pair.sine = angle.sine;
  return pair;
}

/// The pair that has the element's normal: its cosine where `is_sine` is false.
struct ElementNormal {
  NormalPair pair;
  bool is_sine;
  MS_HOST_DEVICE float factor() const { return is_sine ? pair.sine : pair.cosine; }
};
MS_HOST_DEVICE ElementNormal element_normal(const SecureStream& stream, int64_t element) {
  const NoisePlace place = noise_place(element);
  const ChaChaWords words = noise_words(stream.key, place.block, stream.step, stream.parameter);
  const int even = place.word / 2 * 2;
  return {noise_pair(words.word[even], words.word[even + 1], stream.key, place.block, stream.step,
                     stream.parameter, even),
          place.word % 2 == 1};
}

/// A power of two between std x 2^-7 and std x 2^-6.
inline double secure_grid(double std) {
  return std::exp2(std::floor(std::log2(std)) - 6.0);
}

/// Never less than what was asked for.
inline float float_at_least(double std) {
  const auto nearest = static_cast<float>(std);
  return static_cast<double>(nearest) < std ? std::nextafter(nearest, HUGE_VALF) : nearest;
}

/// Powers of two: the products are exact.
MS_HOST_DEVICE float on_grid(float value, float grid, float inverse_grid) {
  return rintf(value * inverse_grid) * grid;
}
MS_HOST_DEVICE double on_grid(double value, double grid, double inverse_grid) {
  return rint(value * inverse_grid) * grid;
}

}  // namespace moonshard::kernels
