// flash_norm, clipped_sum and position_lengths where no kernel runs: the references, and what the
// front ends check.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "kernels/clipped_sum/clipped_sum.h"
#include "kernels/flash_norm/flash_norm.h"
#include "kernels/fused_update/fused_update.h"
#include "kernels/position_lengths/position_lengths.h"
#include "runtime/base/check.h"
#include "tests/kernels/restored.h"

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

TEST(FlashNorm, KeptGradientsHaveUnitsAndTheirSquaresBelongToThem) {
  at::manual_seed(2);
  const std::vector<SampleProblem> list = {problem(2, 6, 256, 16), problem(2, 6, 8, 16)};
  list[0].g[1].mul_(1e-20);
  list[0].g.select(2, 3).zero_();
  const std::vector<KeptGradient> kept = {empty_kept({list[0]}).of[0], {}};
  const at::Tensor squares = flash_norm(list, kept);
  const at::Tensor exact = gradients(list[0]), back = restored(kept[0]);
  for (int64_t b = 0; b < 2; ++b) EXPECT_LT(worst(back[b], exact[b]), 5e-4);
  EXPECT_LT(worst(squares[0], back.square().sum({1, 2})), 1e-12);
  EXPECT_LT(worst(squares[1], gradients(list[1]).square().sum({1, 2})), 1e-5);
  const at::Tensor largest =
      std::get<0>(kept[0].numbers.abs().to(at::kFloat).view({-1, 128}).max(1));
  const at::Tensor is_zero = largest.eq(0);
  EXPECT_EQ(is_zero.sum().item<int64_t>(), 4);  // two units of a row in two samples
  EXPECT_TRUE(
      is_zero.logical_or(largest.ge(16384).logical_and(largest.le(32768))).all().item<bool>());
}

TEST(FlashNorm, UnitsOfGradientsThatAreKeptTogetherLieSideBySide) {
  at::manual_seed(3);
  const std::vector<SampleProblem> list = {problem(3, 6, 256, 16), problem(3, 6, 128, 8)};
  const KeptGradients kept = empty_kept(list);
  flash_norm(list, kept.of);
  EXPECT_EQ(kept.units.sizes(), at::IntArrayRef({3, 32 + 8}));
  const at::Tensor factors = at::tensor({0.5f, 0.0f, 2.0f});
  kept.units.mul_(factors.unsqueeze(1));  // at once for both
  for (size_t n = 0; n < 2; ++n) {
    EXPECT_TRUE(kept.of[n].units.is_alias_of(kept.units));
    const at::Tensor want =
        (gradients(list[n]) * factors.to(at::kDouble).view({3, 1, 1})).sum(0).flatten();
    const at::Tensor got =
        add_weighted_rows({}, kept.of[n].numbers.flatten(1), kept.of[n].units).flatten();
    EXPECT_LT(worst(got, want), 5e-4) << n;
  }
}

TEST(FlashNorm, WhatIsNotFiniteShowsInItsSampleOnly) {
  SampleProblem p{at::ones({2, 1, 128}), at::full({2, 1, 8}, 1e30)};
  p.g[1][0][0] = std::numeric_limits<float>::infinity();
  const KeptGradient kept = empty_kept({p}).of[0];
  const at::Tensor squares = flash_norm({p}, {kept});
  EXPECT_TRUE(kept.numbers[0].isfinite().all().item<bool>());
  EXPECT_LT(worst(restored(kept)[0], gradients(p)[0]), 5e-4);
  EXPECT_TRUE(std::isinf(kept.numbers[1][0][0].item<float>()));
  EXPECT_EQ(kept.units[1][0].item<float>(), 1.0f);
  EXPECT_TRUE(kept.numbers[1][1].isfinite().all().item<bool>());
  EXPECT_FALSE(std::isinf(squares[0][0].item<double>()));
  EXPECT_TRUE(std::isinf(squares[0][1].item<double>()));
}

TEST(FlashNorm, SaysWhatItExpects) {
  const SampleProblem p = problem(2, 3, 8, 16);
  EXPECT_THROW(flash_norm({}), UsageError);
  EXPECT_THROW(flash_norm({p, problem(3, 3, 8, 16)}), UsageError);
  const KeptGradient odd = {at::empty({2, 16, 24}, at::kHalf), at::empty({2, 3})};
  EXPECT_THROW(flash_norm({problem(2, 3, 24, 16)}, {odd}), UsageError);  // no whole units
  EXPECT_TRUE(has_whole_units(16, 8) && has_whole_units(8, 16) && has_whole_units(1152, 3));
  EXPECT_FALSE(has_whole_units(16, 12) || has_whole_units(24, 128) || has_whole_units(136, 128));
  const SampleProblem wide = problem(2, 3, 128, 16);
  const at::Tensor numbers = at::empty({2, 16, 128}, at::kHalf), units = at::empty({2, 16});
  EXPECT_NO_THROW(flash_norm({wide}, {{numbers, units}}));
  EXPECT_THROW(flash_norm({wide}, {{at::empty({2, 128, 16}, at::kHalf), units}}), UsageError);
  EXPECT_THROW(flash_norm({wide}, {{numbers, at::Tensor()}}), UsageError);
  EXPECT_THROW(flash_norm({wide}, {{numbers, at::empty({2})}}), UsageError);
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

// A factor must not be rounded to the operands' 16 bits: the sum would not be that of what was
// clipped.
TEST(ClippedSum, OfOnePositionIsOneProductInFloat32) {
  at::manual_seed(13);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const std::vector<SampleProblem> list = {problem(5, 1, 24, 7, type), problem(5, 1, 3, 40, type),
                                             problem(5, 2, 8, 8, type)};
    const at::Tensor factors = at::tensor({0.3f, 1.0f / 3, 0.0f, 1e-20f, 0.777f});
    std::vector<at::Tensor> out;
    for (const SampleProblem& p : list) out.push_back(at::full({p.g.size(2), p.a.size(2)}, NAN));
    clipped_sum(list, factors, out, false);
    clipped_sum(list, factors, out, true);
    for (size_t n = 0; n < list.size(); ++n) {
      const at::Tensor weighted = gradients(list[n]) * factors.to(at::kDouble).view({5, 1, 1});
      EXPECT_LT(worst(out[n], weighted.sum(0) * 2), 1e-6);
    }
  }
}

TEST(ClippedSum, DroppedSamplesAreNeverRead) {
  for (const int64_t positions : {1, 5}) {
    SampleProblem p = problem(3, positions, 8, 8);
    p.a[1].fill_(NAN);
    p.g[1].fill_(std::numeric_limits<float>::infinity());
    std::vector<at::Tensor> out = {at::empty({8, 8})};
    clipped_sum({p}, at::tensor({1.0f, 0.0f, 1.0f}), out, false);
    EXPECT_TRUE(out[0].isfinite().all().item<bool>());
    clipped_sum({p}, at::zeros({3}), out, false);
    EXPECT_EQ(out[0].abs().max().item<float>(), 0.0f);
  }
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

// Numbers at all sizes, of both signs, and such that are none.
std::vector<double> all_sizes() {
  std::vector<double> list = {0, INFINITY, NAN};
  for (const double power : {-60.0, -38.0, -20.0, -9.0, -3.0, 0.0, 2.0, 12.0, 38.0, 70.0})
    for (const double digits : {1.0, 1.7, 6.3}) list.push_back(digits * std::pow(10.0, power));
  return list;
}

bool same_number(double x, double y) {
  return (std::isnan(x) && std::isnan(y)) || x == y || std::abs(x - y) <= 1e-14 * std::abs(y);
}

// What the kernel computes for one number, against the definition by tensors.
TEST(BoundedSquares, AreOneDefinitionForNumbersAndTensors) {
  const std::vector<double> sizes = all_sizes();
  for (const double magnitude : sizes) {
    for (const double share : {1.0, 0.5, 1.0 / 15, 1.0 / 17, 1e-5, 0.0, -1e-7}) {
      for (const double length : sizes) {
        const double value = magnitude * share, spread = length * 3;
        const SquareTerm gram{NormSource::Gram, nullptr, nullptr, 1, kLostProducts * 77};
        const SquareTerm gradient{NormSource::Gradient, nullptr, nullptr, cut_off_squares(50), 0};
        const auto tensor = [](double x) { return at::full({1}, x, at::kDouble); };
        const double want_gram =
            with_rounding_of_sum(
                bounded_gram(tensor(value), tensor(magnitude)) + gram_underflow(tensor(spread), 77),
                tensor(length), at::kFloat)
                .item<double>();
        const double want_gradient =
            with_rounding_of_sum(tensor(value) * cut_off_squares(50), tensor(length), at::kFloat)
                .item<double>();
        const double got_gram = bounded_square(gram, value, magnitude, length, spread);
        const double got_gradient = bounded_square(gradient, value, 0, length, spread);
        EXPECT_TRUE(same_number(got_gram, want_gram)) << got_gram << " for " << want_gram;
        EXPECT_TRUE(same_number(got_gradient, want_gradient))
            << got_gradient << " for " << want_gradient;
        if (value >= 0) {
          EXPECT_FALSE(got_gram < value) << value;
          EXPECT_FALSE(got_gradient < value) << value;
        }
      }
    }
  }
}

TEST(BoundedSquares, OfOnePositionAreThoseOfTheRows) {
  at::manual_seed(14);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const std::vector<SampleProblem> list = {problem(4, 1, 9, 5, type), problem(4, 1, 1, 33, type)};
    const at::Tensor squares = bounded_squares(list, {{}, {}});
    for (size_t n = 0; n < list.size(); ++n) {
      EXPECT_LT(worst(squares[static_cast<int64_t>(n)], gradients(list[n]).square().sum({1, 2})),
                1e-14);
    }
  }
  // |a| |g| is 1, whatever float32 makes of a square of 1e-30.
  const SampleProblem p{at::full({2, 1, 4}, 0.5e-30), at::full({2, 1, 4}, 0.5e30)};
  EXPECT_LT(worst(bounded_squares({p}, {{}})[0], at::ones({2}, at::kDouble)), 1e-6);
}

TEST(BoundedSquares, OfEachKindGetTheirMargin) {
  at::manual_seed(15);
  const std::vector<SampleProblem> list = {problem(3, 6, 8, 16), problem(3, 1, 8, 16),
                                           problem(3, 40, 16, 24)};
  const at::Tensor value = at::rand({3}, at::kDouble), magnitude = value * 100;
  const at::Tensor squares =
      bounded_squares(list, {{NormSource::Gram, value, magnitude},
                             {},
                             {NormSource::Gradient, flash_norm({list[2]})[0], {}}});
  EXPECT_TRUE((squares[0] >= value + magnitude * 1e-6).all().item<bool>());
  EXPECT_LT(worst(squares[1], gradients(list[1]).square().sum({1, 2})), 1e-14);
  const at::Tensor exact = gradients(list[2]).square().sum({1, 2});
  EXPECT_LT(worst(squares[2], exact * cut_off_squares(40)), 1e-6);
}

TEST(BoundedSquares, SaysWhatItExpects) {
  const SampleProblem p = problem(2, 3, 8, 16), one = problem(2, 1, 8, 16);
  const at::Tensor right = at::ones({2}, at::kDouble);
  EXPECT_THROW(bounded_squares({p}, {}), UsageError);
  EXPECT_THROW(bounded_squares({p}, {{}}), UsageError);  // three positions
  EXPECT_THROW(bounded_squares({p}, {{NormSource::Gram, right, {}}}), UsageError);
  EXPECT_THROW(bounded_squares({p}, {{NormSource::Gradient, at::ones({2}), {}}}), UsageError);
  EXPECT_NO_THROW(bounded_squares({one}, {{NormSource::Gram, right, right}}));
}

// What cancels is trusted to the digits of the matrices: in double they are many.
TEST(BoundedSquares, MarginsOfGramMatricesFollowTheirDtype) {
  const at::Tensor value = at::full({1}, 1.0, at::kDouble), magnitude = value * 100;
  EXPECT_GT(bounded_gram(value, magnitude).item<double>(), 1 + 5e-5);
  EXPECT_GT(bounded_gram(value, magnitude, at::kDouble).item<double>(), 1);
  EXPECT_LT(bounded_gram(value, magnitude, at::kDouble).item<double>(), 1 + 1e-11);
  EXPECT_EQ(bounded_gram(value, value * 2).item<double>(), 1) << "nothing cancels";
}

}  // namespace
}  // namespace moonshard::kernels
