// Noise that is to resist an adversary: its words, its distribution, its grid (goals of G5).
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/secure_noise/secure_noise.h"
#include "kernels/secure_noise/secure_noise_math.h"
#include "runtime/base/check.h"
#include "runtime/core/random_words.h"
#include "tests/kernels/normal_numbers.h"

namespace moonshard::kernels {
namespace {

ChaChaKey key_of(uint32_t first) {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = first + 0x01010101u * i;
  return key;
}

using Draw =
    std::function<at::Tensor(int64_t count, uint32_t step, uint32_t parameter, int64_t first)>;

// On the grid, as they are used.
at::Tensor secure_cells(int64_t count, uint32_t step, uint32_t parameter, int64_t first) {
  at::Tensor target = at::zeros({count});
  add_secure_noise(target, 1.0, {key_of(7), step, parameter}, first);
  return target;
}

// Off it: values spread over a cell are taken away again.
at::Tensor secure(int64_t count, uint32_t step, uint32_t parameter, int64_t first) {
  at::manual_seed(static_cast<uint64_t>(first) + step);
  const at::Tensor spread = at::rand({count}, at::kDouble) * secure_grid(1.0);
  at::Tensor target = spread.clone();
  add_secure_noise(target, 1.0, {key_of(7), step, parameter}, first);
  return target - spread;
}

at::Tensor counter(int64_t count, uint32_t step, uint32_t parameter, int64_t first) {
  at::Tensor target = at::zeros({count});
  add_counter_noise(target, 1.0, {42, step, parameter}, first);
  return target.to(at::kDouble);
}

// RFC 8439, section 2.3.2: the block function's own example.
TEST(ChaCha20, GivesThePublishedKnownAnswer) {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = 0x03020100u + 0x04040404u * i;
  const ChaChaWords got = chacha20(key, 0x0900000000000001u, 0x4a000000u, 0);
  const uint32_t want[16] = {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033,
                             0x9aaa2204, 0x4e6cd4c3, 0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                             0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
  for (int i = 0; i < 16; ++i) EXPECT_EQ(got.word[i], want[i]) << i;
}

// draft-strombergson-chacha-test-vectors, TC1: key and nonce of zeros, 8 rounds.
TEST(ChaCha8, GivesThePublishedKnownAnswer) {
  const ChaChaWords got = chacha<8>({}, 0, 0, 0);
  const uint32_t want[16] = {0x2fef003e, 0xd6405f89, 0xe8b85b7f, 0xa1a5091f, 0xc30e842c, 0x3b7f9ace,
                             0x88e11b18, 0x1e1a71ef, 0x72e14c98, 0x416f21b9, 0x6753449f, 0x19566d45,
                             0xa3424a31, 0x01b086da, 0xb8fd7b38, 0x42fe0c0e};
  for (int i = 0; i < 16; ++i) EXPECT_EQ(got.word[i], want[i]) << i;
}

TEST(SecureNoise, AShardDrawsExactlyItsPartOfTheWhole) {
  const at::Tensor whole = secure_cells(20003, 3, 11, 0);
  for (const int64_t first : {0, 1, 2, 511, 512, 4095, 4096, 4097, 19990}) {
    const int64_t count = std::min<int64_t>(5001, 20003 - first);
    EXPECT_TRUE(at::equal(secure_cells(count, 3, 11, first), whole.slice(0, first, first + count)));
  }
}

// So many that some are of the tail, which one tile of 256 has.
TEST(SecureNoise, IsTheReferencesOnTheCpu) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    at::Tensor want = at::randn({1'000'001}, type), got = want.clone();
    add_secure_noise_ref(want, 0.37, {key_of(3), 5, 9}, 77);
    add_secure_noise_cpu(got, 0.37, {key_of(3), 5, 9}, 77);
    EXPECT_TRUE(at::equal(got, want)) << c10::toString(type);
  }
}

// A 32-bit word alone would end at 6.66; further bits go on, and come from blocks of their own.
TEST(SecureNoise, HasTailsThatAreNotCut) {
  const ChaChaKey key = key_of(7);
  EXPECT_GT(radius_of_word(kTailWord), 4.7);
  double mean = 0;
  const int count = 100'000;
  float largest = 0;
  for (int i = 0; i < count; ++i) {
    const float radius = tail_radius(0, key, static_cast<uint64_t>(i), 1, 2, 4);
    EXPECT_GT(radius, 6.66f);
    largest = std::max(largest, radius);
    mean += radius * radius / 2 - 32 * std::log(2.0);  // exponential with mean 1
  }
  EXPECT_NEAR(mean / count, 1, 0.02);
  EXPECT_GT(largest, 7.9f);
  // Every radius of the tail is above those of the words behind it.
  for (const uint32_t word : {0u, 1u, 5u, 1000u, kTailWord - 1})
    EXPECT_GT(tail_radius(word, key, 3, 1, 2, 0), radius_of_word(word + 1)) << word;
}

// Both generators: standard deviation within 1 % over 1e7 draws (it is far closer), and the
// Kolmogorov-Smirnov distance that is exceeded once in ten thousand.
TEST(Noise, IsStandardNormalOverTenMillionDraws) {
  for (const Draw& draw : {Draw(secure), Draw(counter)})
    expect_standard_normal(draw(10'000'000, 1, 0, 0), 2.23);
}

// Steps, parameters, shards of a parameter: what different ranks and micro-batches would draw.
TEST(Noise, IsNeitherRepeatedNorCorrelatedOverStepsAndShards) {
  for (const Draw& draw : {Draw(secure), Draw(counter)}) {
    const int64_t n = 100'000;
    std::vector<at::Tensor> drawn;
    for (const uint32_t step : {1u, 2u})
      for (int64_t shard = 0; shard < 8; ++shard) drawn.push_back(draw(n, step, 5, shard * n));
    for (size_t a = 0; a < drawn.size(); ++a)
      for (size_t b = a + 1; b < drawn.size(); ++b)
        EXPECT_LT(std::abs((drawn[a] * drawn[b]).mean().item<double>()),
                  5 / std::sqrt(static_cast<double>(n)))
            << a << " and " << b;  // 120 pairs: five standard errors
    // Equal stretches would be noise that is used again.
    const at::Tensor all = at::cat(drawn);
    const at::Tensor pairs = at::stack({all.slice(0, 0, -1), all.slice(0, 1)}, 1);
    const at::Tensor unique = std::get<0>(at::unique_dim(pairs.slice(0, 0, 400'000), 0));
    EXPECT_EQ(unique.size(0), 400'000) << "of 400,000 pairs of neighbours";
  }
}

TEST(SecureNoise, IsOnAGridThatHidesTheLastBitsOfTheValue) {
  const double std = 0.37, grid = secure_grid(std);
  EXPECT_LE(grid, std * 0x1p-6);
  EXPECT_GT(grid, std * 0x1p-7);
  for (const auto type : {at::kFloat, at::kDouble}) {
    at::Tensor target = at::full({10'000}, 0.123456789, type);
    add_secure_noise(target, std, {key_of(1), 1, 1});
    const at::Tensor cells = target.to(at::kDouble) / grid;
    EXPECT_TRUE(at::equal(cells, cells.round())) << c10::toString(type);
  }
  // Two values that differ in their last bits alone give the same numbers nearly always: what
  // differs is how often a cell is crossed, not which cells can be reached.
  at::Tensor a = at::full({100'000}, 0.5, at::kDouble),
             b = at::full({100'000}, 0.5 + 1e-15, at::kDouble);
  add_secure_noise(a, std, {key_of(1), 1, 1});
  add_secure_noise(b, std, {key_of(1), 1, 1});
  EXPECT_LT(a.ne(b).sum().item<int64_t>(), 5);
}

// The share of all words that lands in a cell must not depend on the low bits of the value, or many
// coordinates together would tell them. One pair's radius is fixed here by the words; angles are
// counted: those whose cosine puts the sum into the cell, for a value and for others a little
// beside it. (Over radii the counts average further: docs/privacy.md.)
TEST(SecureNoise, ACellCollectsTheSameWordsWhateverTheLowBitsOfTheValue) {
  const double grid = secure_grid(1.0);
  const auto words_in_cell = [&](double value, float radius) {
    // The cosine falls over the first half turn: the words of a cell are an interval of it.
    const auto first_below = [&](double edge) {
      uint32_t low = 0, high = 0x7fffffffu;
      while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const double sum =
            value + static_cast<double>(radius) * static_cast<double>(turn_of_word(middle).cosine);
        (sum < edge) ? high = middle : low = middle + 1;
      }
      return low;
    };
    return static_cast<double>(first_below(0.5 * grid) - first_below(1.5 * grid));
  };
  double worst = 0;
  for (const float radius : {0.9f, 1.1f, 1.7f, 2.9f}) {
    const double base = words_in_cell(0.25, radius);
    for (int i = 1; i < 200; ++i) {
      const double shift = i * 1.37e-9;  // far below float32's resolution of the noise
      const double slope = words_in_cell(0.25 + 1e-4, radius) - words_in_cell(0.25 - 1e-4, radius);
      const double expected = base + slope * shift / 2e-4;
      worst = std::max(worst, std::abs(words_in_cell(0.25 + shift, radius) - expected) / base);
    }
  }
  EXPECT_LT(worst, 2e-5);  // 100 of some ten million words; 2^-27 over all radii of a cell
}

TEST(SecureNoise, KeysComeFromTheSystemAndDiffer) {
  const ChaChaKey a = draw_secret_key(), b = draw_secret_key();
  EXPECT_FALSE(std::equal(a.word, a.word + 8, b.word));
  EXPECT_NE(RandomWords(a).word(1, 2, 3), RandomWords(b).word(1, 2, 3));
  EXPECT_NE(RandomWords(uint64_t{1}).word(1, 2, 3), RandomWords(uint64_t{2}).word(1, 2, 3));
  for (uint64_t i = 0; i < 20; ++i)
    EXPECT_NE(RandomWords(a).word(1, 2, i), RandomWords(a).word(1, 2, i + 1));
}

TEST(SecureNoise, RefusesWhatItCannotHide) {
  at::Tensor narrow = at::zeros({4}, at::kBFloat16), plain = at::zeros({4});
  EXPECT_THROW(add_secure_noise(narrow, 1, {}), UsageError);
  EXPECT_THROW(add_secure_noise(plain, 0, {}), UsageError);
}

}  // namespace
}  // namespace moonshard::kernels
