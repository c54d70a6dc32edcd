// The styles of clipping by their definitions, and the noise that goes with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "runtime/base/check.h"
#include "runtime/privacy/clip_groups.h"
#include "runtime/privacy/clipping.h"

namespace moonshard::privacy {
namespace {

ClipOptions style(const char* clipping, double bound = 2) {
  ClipOptions options;
  options.clipping = clipping;
  options.max_grad_norm = bound;
  return options;
}

void no_noise(at::Tensor&, double) {}

TEST(Clipping, FlatScalesDownToTheBoundAndNeverUp) {
  const Clipping flat(style("flat"));
  const at::Tensor factors = flat.factors(at::tensor({0.0, 1.0, 2.0, 8.0}, at::kDouble));
  EXPECT_EQ(factors[0].item<double>(), 1);
  EXPECT_EQ(factors[1].item<double>(), 1);
  EXPECT_LE(factors[2].item<double>() * 2, 2);
  EXPECT_NEAR(factors[3].item<double>(), 0.25, 1e-6);
}

TEST(Clipping, PerLayerGivesEachLayerItsShareSoThatTheWholeStaysWithinTheBound) {
  const Clipping per_layer(style("per_layer"));
  const double layers = 7;
  double squares = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const at::Tensor norm = at::full({1}, 10.0 + static_cast<double>(i), at::kDouble);
    const double after = (norm * per_layer.factors(norm, 1 / std::sqrt(layers))).item<double>();
    squares += after * after;
  }
  EXPECT_LE(std::sqrt(squares), 2);
  EXPECT_GT(std::sqrt(squares), 2 * 0.999999);
}

TEST(Clipping, GroupsHaveBoundsOfTheirOwnWhoseSquaresAddUp) {
  ClipOptions options = style("groups");
  options.mode = "ghost";
  options.max_grad_norm = 12;
  options.clip_groups = " *lora_A*,*lora_B* = 3;; score.*=4e0 ";
  const Clipping groups(options, {"q.lora_A", "score.weight", "norm.weight", "q.lora_B"});
  EXPECT_DOUBLE_EQ(groups.bound(), 13);
  EXPECT_DOUBLE_EQ(groups.noise_std(1), 13 * options.noise_multiplier);
  EXPECT_THAT(groups.shares(), testing::ElementsAre(3. / 13, 4. / 13, 12. / 13));
  EXPECT_EQ(groups.group_of("q.lora_B"), 0u);
  EXPECT_EQ(groups.group_of("score.weight"), 1u);
  EXPECT_EQ(groups.group_of("norm.weight"), 2u);
  EXPECT_NEAR(groups.factors(at::tensor({8.0}, at::kDouble), groups.shares()[1]).item<double>(),
              0.5, 1e-6);
  // Nothing is left for max_grad_norm: it is no part of the noise.
  EXPECT_DOUBLE_EQ(Clipping(options, {"q.lora_A", "score.weight"}).bound(), 5);
  EXPECT_EQ(clip_groups_text(parse_clip_groups(options.clip_groups)),
            "*lora_A*, *lora_B* = 3; score.* = 4");
}

TEST(Clipping, GroupsThatCannotBeMeantAreRefused) {
  const auto message = [](const std::string& text, const char* clipping = "groups") {
    ClipOptions options = style(clipping);
    options.mode = "ghost";
    options.clip_groups = text;
    try {
      const Clipping clipping_of(options, {"a.weight", "a.bias"});
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("*.bias = 1"), "");
  EXPECT_THAT(message(""), testing::HasSubstr("expected groups of parameters and their bounds"));
  EXPECT_THAT(message("*.bias"), testing::HasSubstr("got '*.bias' without a bound"));
  EXPECT_THAT(message("= 2"), testing::HasSubstr("without names of parameters"));
  EXPECT_THAT(message("*.bias = one"), testing::HasSubstr("expected a bound from 1e-12 to 1e12"));
  EXPECT_THAT(message("*.bias = 0"), testing::HasSubstr("got '0' in '*.bias = 0'"));
  EXPECT_THAT(message("* = 1; *.bias = 1"), testing::HasSubstr("got '*.bias = 1', which matches"));
  EXPECT_THAT(message("*.bias = 1", "flat"), testing::HasSubstr("expected clipping = groups"));
}

TEST(Clipping, AutomaticNormalisesAndStaysBelowTheBound) {
  ClipOptions options = style("automatic");
  options.stability = 0.01;
  const Clipping automatic(options);
  const at::Tensor norms = at::tensor({0.0, 1e-3, 1.0, 1e6}, at::kDouble);
  const at::Tensor factors = automatic.factors(norms);
  EXPECT_DOUBLE_EQ(factors[2].item<double>(), 2 / 1.01);
  EXPECT_LT((norms * factors).max().item<double>(), 2);
  EXPECT_TRUE(factors.isfinite().all().item<bool>());
}

TEST(Clipping, AdaptiveMovesTheBoundTowardsTheQuantile) {
  ClipOptions options = style("adaptive", 1);
  options.noise_multiplier = 0;
  options.target_quantile = 0.5;
  options.quantile_lr = 0.2;
  Clipping adaptive(options);
  const at::Tensor norms = at::arange(1, 101, at::kDouble) / 10;  // the median is 5.05
  adaptive.end_step(norms, 100, no_noise);
  EXPECT_DOUBLE_EQ(adaptive.bound(), std::exp(-0.2 * (0.10 - 0.5)));
  for (int64_t step = 2; step < 200; ++step) adaptive.end_step(norms, 100, no_noise);
  EXPECT_NEAR(adaptive.bound(), 5.05, 0.1);
}

TEST(Clipping, AdaptiveNoisesTheCountAndPaysForIt) {
  ClipOptions options = style("adaptive", 1);
  options.noise_multiplier = 1;
  Clipping noisy(options);
  double asked = 0, before = 0;
  noisy.end_step(at::zeros({100}, at::kDouble), 100, [&](at::Tensor& count, double std) {
    asked = std;
    before = count.item<double>();
    count.add_(3.0);
  });
  EXPECT_DOUBLE_EQ(asked, 5.0);  // batch / 20
  EXPECT_DOUBLE_EQ(before, 50.0);
  EXPECT_DOUBLE_EQ(noisy.bound(), std::exp(-0.2 * (1.03 - 0.5)));
  // Noise of gradient and count together cost what noise_multiplier alone would.
  const Clipping fresh(options);
  const double gradient = fresh.noise_std(100), bits = 2 * 5.0;
  EXPECT_NEAR(1 / (gradient * gradient) + 1 / (bits * bits), 1, 1e-12);
  EXPECT_GT(gradient, 1);
}

// What is noised moves by one half, whoever joins or leaves: noise_std pays for no more.
TEST(Clipping, AdaptiveCountMovesByHalfWithASample) {
  ClipOptions options = style("adaptive", 1);
  options.noise_multiplier = 1;
  const auto count_of = [&](const at::Tensor& norms) {
    double seen = NAN;
    Clipping clipping(options);
    clipping.end_step(norms, 10, [&](at::Tensor& count, double) { seen = count.item<double>(); });
    return seen;
  };
  const at::Tensor others = at::tensor({0.5, 0.9, 3.0, 7.0, 0.1}, at::kDouble);
  for (const double norm : {0.2, 5.0, static_cast<double>(INFINITY)}) {
    const at::Tensor one = at::full({1}, norm, at::kDouble);
    EXPECT_DOUBLE_EQ(std::abs(count_of(at::cat({others, one})) - count_of(others)), 0.5) << norm;
  }
  EXPECT_DOUBLE_EQ(count_of(at::empty({0}, at::kDouble)), 0);
}

TEST(Clipping, AdaptiveRefusesACountNoiseThatCannotPay) {
  ClipOptions options = style("adaptive");
  options.noise_multiplier = 3;
  const Clipping clipping(options);
  EXPECT_THROW(clipping.noise_std(4), UsageError);
  options.quantile_noise = 100;
  EXPECT_NO_THROW(Clipping(options).noise_std(4));
}

TEST(Clipping, AdaptiveStaysWithinWhatABoundMayBe) {
  ClipOptions options = style("adaptive", 1);
  options.noise_multiplier = 0;
  options.quantile_lr = 10;
  for (const double target : {0.0, 1.0}) {
    options.target_quantile = target;
    Clipping adaptive(options);
    const at::Tensor norms = at::full({4}, target == 1.0 ? 1e300 : 0.0, at::kDouble);
    for (int64_t step = 1; step < 100; ++step) adaptive.end_step(norms, 4, no_noise);
    EXPECT_GE(adaptive.bound(), 1e-12);
    EXPECT_LE(adaptive.bound(), 1e12);
  }
}

// Denormal factors of float32 round up: a sample that needs one is dropped instead.
TEST(Clipping, DropsASampleWhoseFactorFloat32CannotHold) {
  const at::Tensor factors = Clipping(style("flat")).factors(at::tensor({1e29, 1e45}, at::kDouble));
  EXPECT_GT(factors[0].item<double>(), 0);
  EXPECT_EQ(factors[1].item<double>(), 0);
}

TEST(Clipping, DropsASampleWithoutAFiniteNormInEveryStyle) {
  for (const char* name : {"flat", "per_layer", "automatic", "adaptive"}) {
    const at::Tensor norms =
        at::tensor({std::nan(""), std::numeric_limits<double>::infinity(), 1.0}, at::kDouble);
    const at::Tensor factors = Clipping(style(name)).factors(norms);
    EXPECT_EQ(factors[0].item<double>(), 0) << name;
    EXPECT_EQ(factors[1].item<double>(), 0) << name;
    EXPECT_GT(factors[2].item<double>(), 0) << name;
  }
}

}  // namespace
}  // namespace moonshard::privacy
