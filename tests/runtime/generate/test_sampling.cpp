// Which tokens are drawn, and how often.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "runtime/generate/sampling.h"

namespace moonshard::generate {
namespace {

// How often each of V tokens is drawn by that many rows.
at::Tensor frequencies(const at::Tensor& scores, GenerateOptions options, int64_t rows) {
  options.max_new_tokens = 2;
  Sampler sampler(options, rows, c10::kCPU);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < rows; ++i) numbers.push_back(i);
  sampler.begin(numbers);
  const at::Tensor ids =
      sampler.choose(scores.expand({rows, scores.size(0)}), at::tensor({1}, at::kLong));
  return at::bincount(ids, {}, scores.size(0)).to(at::kDouble) / static_cast<double>(rows);
}

TEST(Sampling, DrawsAsTheModelSays) {
  const at::Tensor scores = at::tensor({2.0, 0.5, -1.0, 1.0, -40.0}, at::kDouble);
  for (const double temperature : {0.5, 1.0, 3.0}) {
    GenerateOptions options;
    options.temperature = temperature;
    options.seed = 3;
    const at::Tensor wanted = at::softmax(scores / temperature, -1);
    // Five standard deviations of 40,000 draws.
    EXPECT_LE((frequencies(scores, options, 40'000) - wanted).abs().max().item<double>(),
              5 * 0.5 / 200);
  }
}

TEST(Sampling, TopKAndTopPLeaveTheMostProbableAlone) {
  const at::Tensor shares = at::tensor({0.1, 0.4, 0.05, 0.3, 0.15}, at::kDouble);
  const auto drawn = [&](double top_p, int64_t top_k) {
    GenerateOptions options;
    options.top_p = top_p;
    options.top_k = top_k;
    const at::Tensor often = frequencies(shares.log(), options, 20'000);
    const at::Tensor kept = often > 0;
    const at::Tensor wanted = shares * kept / (shares * kept).sum();
    EXPECT_LE((often - wanted).abs().max().item<double>(), 5 * 0.5 / 141);
    std::string text;
    for (int64_t i = 0; i < 5; ++i) text += kept[i].item<bool>() ? '1' : '0';
    return text;
  };
  EXPECT_EQ(drawn(1, 0), "11111");
  EXPECT_EQ(drawn(1, 2), "01010");
  EXPECT_EQ(drawn(0.39, 0), "01000");
  EXPECT_EQ(drawn(0.69, 0), "01010");
  EXPECT_EQ(drawn(0.71, 0), "01011");
  EXPECT_EQ(drawn(0.94, 0), "11011");
  EXPECT_EQ(drawn(0.69, 3), "01010");
}

TEST(Sampling, TheNucleusIsThatOfASort) {
  at::manual_seed(5);
  const at::Tensor parts = (at::softmax(at::randn({20, 300}) * 3, -1) * (1 << 30)).to(at::kInt);
  for (const double share : {0.05, 0.5, 0.9, 0.999}) {
    const at::Tensor kept = nucleus(parts, share) > 0;
    for (int64_t b = 0; b < parts.size(0); ++b) {
      const auto [sorted, order] = parts[b].sort(-1, /*descending=*/true);
      const at::Tensor before = sorted.cumsum(-1, at::kLong) - sorted;
      const double all = parts[b].sum().item<double>();
      const at::Tensor wanted = at::zeros({300}, at::kBool)
                                    .index_put({order}, before.to(at::kDouble) < share * all)
                                    .logical_and(parts[b] > 0);
      EXPECT_TRUE(kept[b].equal(wanted)) << share << " row " << b;
    }
  }
}

TEST(Sampling, TemperatureZeroTakesTheBest) {
  GenerateOptions options;
  options.temperature = 0;
  Sampler sampler(options, 2, c10::kCPU);
  sampler.begin({0, 1});
  const at::Tensor scores = at::tensor({1.0, 3.0, 2.0, 5.0, 4.0, 0.0}, at::kDouble).view({2, 3});
  EXPECT_TRUE(
      sampler.choose(scores, at::zeros({1}, at::kLong)).equal(at::tensor({1, 0}, at::kLong)));
}

}  // namespace
}  // namespace moonshard::generate
