// flash_norm, clipped_sum and position_lengths where no kernel runs: the references, and what the
// front ends check.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "kernels/clipped_sum/clipped_sum.h"
#include "kernels/flash_norm/flash_norm.h"
#include "kernels/position_lengths/position_lengths.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

SampleProblem problem(int64_t samples, int64_t positions, int64_t i, int64_t o,
                      at::ScalarType type = at::kFloat) {
  return {at::randn({samples, positions, i}, type), at::randn({samples, positions, o}, type)};
}

at::Tensor gradients(const SampleProblem& p) {
  return at::einsum("bto,bti->boi", {p.g.to(at::kDouble), p.a.to(at::kDouble)});
}

double worst(const at::Tensor& got, const at::Tensor& wanted) {
  return ((got.to(at::kDouble) - wanted).abs().max() / wanted.abs().max()).item<double>();
}

TEST(FlashNorm, SquaresAreThoseOfThePerSampleGradients) {
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const std::vector<SampleProblem> list = {problem(3, 7, 5, 9, type), problem(3, 1, 8, 16, type)};
    const at::Tensor squares = flash_norm(list);
    for (size_t n = 0; n < list.size(); ++n) {
      const at::Tensor wanted = gradients(list[n]).square().sum({1, 2});
      EXPECT_LT(worst(squares[static_cast<int64_t>(n)], wanted), 1e-5);
    }
  }
}

TEST(FlashNorm, KeptGradientsAreScaledRoundedAndTheirSquaresBelongToThem) {
  at::manual_seed(2);
  const std::vector<SampleProblem> list = {problem(2, 6, 8, 16), problem(2, 6, 8, 16)};
  const std::vector<at::Tensor> kept = {at::empty({2, 16, 8}, at::kHalf), at::Tensor()};
  const std::vector<at::Tensor> scales = {at::tensor({256.0f, 0.5f}), at::Tensor()};
  const at::Tensor squares = flash_norm(list, kept, scales);
  const at::Tensor exact = gradients(list[0]);
  const at::Tensor back = kept[0].to(at::kDouble) / scales[0].to(at::kDouble).view({2, 1, 1});
  EXPECT_LT(worst(back, exact), 1e-3);
  EXPECT_LT(worst(squares[0], back.square().sum({1, 2})), 1e-12);
  EXPECT_LT(worst(squares[1], gradients(list[1]).square().sum({1, 2})), 1e-5);
}

TEST(FlashNorm, WhatIsFiniteStaysFiniteAndWhatIsNotShows) {
  SampleProblem p{at::ones({2, 1, 8}), at::full({2, 1, 8}, 1e6)};
  p.g[1][0][0] = std::numeric_limits<float>::infinity();
  const at::Tensor kept = at::empty({2, 8, 8}, at::kHalf);
  const at::Tensor squares = flash_norm({p}, {kept}, {at::ones({2})});
  EXPECT_EQ(kept[0].max().item<float>(), 65504.0f);
  EXPECT_TRUE(std::isinf(kept[1][0][0].item<float>()));
  EXPECT_EQ(kept[1][1][0].item<float>(), 65504.0f);
  EXPECT_TRUE(std::isinf(squares[0][1].item<double>()));
}

TEST(FlashNorm, SaysWhatItExpects) {
  const SampleProblem p = problem(2, 3, 8, 16);
  EXPECT_THROW(flash_norm({}), UsageError);
  EXPECT_THROW(flash_norm({p, problem(3, 3, 8, 16)}), UsageError);
  EXPECT_THROW(flash_norm({p}, {at::empty({2, 8, 16}, at::kHalf)}, {at::ones({2})}), UsageError);
  EXPECT_THROW(flash_norm({p}, {at::empty({2, 16, 8}, at::kHalf)}, {at::Tensor()}), UsageError);
  EXPECT_FALSE(flash_norm_supports(p));
}

TEST(ClippedSum, IsTheWeightedSumOfPerSampleGradients) {
  at::manual_seed(3);
  const std::vector<SampleProblem> list = {problem(3, 5, 4, 6), problem(3, 2, 8, 3)};
  const at::Tensor factors = at::tensor({0.5f, 1e-20f, 1.0f});
  std::vector<at::Tensor> out = {at::full({6, 4}, NAN), at::full({3, 8}, NAN)};
  clipped_sum(list, factors, out, false);
  clipped_sum(list, factors, out, true);
  for (size_t n = 0; n < 2; ++n) {
    const at::Tensor weighted = gradients(list[n]) * factors.to(at::kDouble).view({3, 1, 1});
    EXPECT_LT(worst(out[n], weighted.sum(0) * 2), 1e-5);
  }
}

TEST(ClippedSum, DroppedSamplesAreNeverRead) {
  SampleProblem p = problem(3, 5, 8, 8);
  p.a[1].fill_(NAN);
  p.g[1].fill_(std::numeric_limits<float>::infinity());
  std::vector<at::Tensor> out = {at::empty({8, 8})};
  clipped_sum({p}, at::tensor({1.0f, 0.0f, 1.0f}), out, false);
  EXPECT_TRUE(out[0].isfinite().all().item<bool>());
  clipped_sum({p}, at::zeros({3}), out, false);
  EXPECT_EQ(out[0].abs().max().item<float>(), 0.0f);
}

TEST(ClippedSum, SaysWhatItExpects) {
  const SampleProblem p = problem(2, 3, 8, 16);
  std::vector<at::Tensor> out = {at::empty({16, 8})}, wrong = {at::empty({8, 16})};
  EXPECT_THROW(clipped_sum({p}, at::ones({3}), out, false), UsageError);
  EXPECT_THROW(clipped_sum({p}, at::ones({2}, at::kDouble), out, false), UsageError);
  EXPECT_THROW(clipped_sum({p}, at::ones({2}), wrong, false), UsageError);
}

TEST(PositionLengths, BoundEveryElementAndTheNorm) {
  at::manual_seed(4);
  const SampleProblem p = problem(4, 9, 5, 7, at::kBFloat16);
  const at::Tensor lengths = position_lengths({p})[0];
  const at::Tensor exact = (p.a.to(at::kDouble).norm(2, 2) * p.g.to(at::kDouble).norm(2, 2)).sum(1);
  EXPECT_TRUE((lengths >= exact).all().item<bool>());
  EXPECT_TRUE((lengths <= exact * (1 + 2e-5)).all().item<bool>());
  const at::Tensor elements = gradients(p).abs().amax({1, 2});
  EXPECT_TRUE((lengths >= elements).all().item<bool>());
}

TEST(PositionLengths, TinyAndHugeRowsNeitherVanishNorOverflow) {
  SampleProblem p{at::full({2, 3, 4}, 1e-30), at::full({2, 3, 4}, 1e-10)};
  p.a[1].fill_(1e30);
  const at::Tensor lengths = position_lengths({p})[0];
  EXPECT_NEAR(lengths[0].item<double>() / (3 * 4e-40), 1, 2e-5);
  EXPECT_NEAR(lengths[1].item<double>() / (3 * 4e20), 1, 2e-5);
}

TEST(KeepScales, ArePowersOfTwoThatFitFloat16) {
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor lengths =
      at::tensor({1e-8, 0.3, 1.0, 32768.0, 4e9, 0.0, inf, std::nan("")}, at::kDouble);
  const at::Tensor scales = keep_scales(lengths);
  for (int64_t n = 0; n < 5; ++n) {
    const double scale = scales[n].item<double>(), scaled = scale * lengths[n].item<double>();
    int exponent;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5);
    EXPECT_GE(scaled, 16384);
    EXPECT_LT(scaled, 32768);
  }
  for (int64_t n = 5; n < 8; ++n) EXPECT_EQ(scales[n].item<float>(), 1.0f);
}

}  // namespace
}  // namespace moonshard::kernels
