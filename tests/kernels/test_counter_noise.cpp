#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <set>

#include "kernels/common/philox.h"
#include "kernels/counter_noise/counter_noise.h"
#include "tests/kernels/normal_numbers.h"

namespace moonshard::kernels {
namespace {

at::Tensor normals(int64_t count, const NoiseStream& stream, int64_t first = 0) {
  at::Tensor target = at::zeros({count});
  add_counter_noise(target, 1.0, stream, first);
  return target;
}

// Known answers published with the generator (Random123's kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesThePublishedKnownAnswers) {
  const auto check = [](PhiloxWords counter, uint32_t low, uint32_t high,
                        std::array<uint32_t, 4> want) {
    const PhiloxWords got = philox4x32_10(counter, low, high);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(got.word[i], want[static_cast<size_t>(i)]) << "word " << i;
  };
  check({{0, 0, 0, 0}}, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  check({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff,
        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(CounterNoise, AShardDrawsExactlyItsPartOfTheWhole) {
  const NoiseStream stream{7, 3, 11};
  const at::Tensor whole = normals(1003, stream);
  for (const int64_t first : {0, 1, 2, 3, 5, 500, 1000}) {
    const int64_t count = std::min<int64_t>(101, 1003 - first);
    EXPECT_TRUE(at::equal(normals(count, stream, first), whole.slice(0, first, first + count)))
        << first;
  }
}

TEST(CounterNoise, AShardDrawsItsPartAcrossPieces) {
  const NoiseStream stream{7, 3, 11};
  const at::Tensor whole = normals(40003, stream);
  for (const int64_t first : {8191, 8192, 8193, 12345, 30000, 39990}) {
    const int64_t count = std::min<int64_t>(9001, 40003 - first);
    EXPECT_TRUE(at::equal(normals(count, stream, first), whole.slice(0, first, first + count)))
        << first;
  }
}

TEST(CounterNoise, EqualsTheReferenceUpToTheRoundingOfItsFunctions) {
  const NoiseStream stream{5, 9, 2};
  for (const int64_t first : {0, 3, 4097}) {
    at::Tensor want = at::zeros({20011});
    add_counter_noise_ref(want, 1.0, stream, first);
    EXPECT_LT((normals(20011, stream, first) - want).abs().max().item<double>(), 2e-6);
  }
}

TEST(CounterNoise, IsStandardNormal) {
  expect_standard_normal(normals(4'000'000, {42, 1, 0}).to(at::kDouble), 1.95);
}

TEST(CounterNoise, StreamsAreNeitherRepeatedNorCorrelated) {
  const int64_t n = 200'000;
  const std::vector<NoiseStream> streams = {
      {1, 1, 0}, {1, 2, 0}, {1, 1, 1}, {2, 1, 0}, {1, 1, kPurposeInitialWeights}};
  std::vector<at::Tensor> drawn;
  for (const NoiseStream& stream : streams) drawn.push_back(normals(n, stream).to(at::kDouble));
  for (size_t a = 0; a < drawn.size(); ++a) {
    for (size_t b = a + 1; b < drawn.size(); ++b) {
      EXPECT_LT(std::abs((drawn[a] * drawn[b]).mean().item<double>()),
                4 / std::sqrt(static_cast<double>(n)));
      EXPECT_FALSE(at::equal(drawn[a], drawn[b])) << a << " and " << b;
    }
  }
}

TEST(CounterNoise, AddsToWhatIsThereInEveryFormat) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    at::Tensor target = at::full({64}, 2.0, type);
    add_counter_noise(target, 0.5, {3, 1, 2});
    const at::Tensor want = (2.0 + 0.5 * normals(64, {3, 1, 2}).to(at::kDouble)).to(type);
    EXPECT_TRUE(at::equal(target, want)) << c10::toString(type);
  }
}

TEST(CounterNoise, RefusesIntegersAndHoles) {
  at::Tensor integers = at::zeros({4}, at::kLong);
  EXPECT_THROW(add_counter_noise(integers, 1, {}), std::exception);
  at::Tensor holes = at::zeros({4, 4}).t();
  EXPECT_THROW(add_counter_noise(holes, 1, {}), std::exception);
}

}  // namespace
}  // namespace moonshard::kernels
