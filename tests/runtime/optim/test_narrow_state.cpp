// Optimizer states in bfloat16: rounding by a coin, and that what stalls without it goes on.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "kernels/coin_rounding/coin_rounding.h"
#include "runtime/optim/narrow_state.h"
#include "runtime/optim/optimizer.h"

namespace moonshard::optim {
namespace {

using kernels::round_by_coin;
using kernels::round_by_coin_ref;
using kernels::RoundingCoins;

models::Parameter parameter_of(const at::Tensor& value, uint32_t index = 3) {
  models::Parameter parameter;
  parameter.name = "weight";
  parameter.index = index;
  parameter.value = value.clone();
  return parameter;
}

NoiseSpec with_key(uint64_t key) {
  NoiseSpec spec;
  spec.key = key;
  return spec;
}

OptimizerOptions narrow(const char* name) {
  OptimizerOptions options;
  options.optimizer = name;
  options.state_dtype = "bfloat16";
  options.momentum = std::string(name) == "sgd" ? 0.9 : 0;
  options.weight_decay = 0;
  options.lr = 0.01;
  return options;
}

// Steps with these gradients; the weights afterwards.
at::Tensor after_steps(Optimizer& optimizer, models::Parameter& parameter, double lr, int steps,
                       const std::function<at::Tensor(int)>& gradient, int64_t first = 0,
                       uint64_t key = 7) {
  for (int step = 1; step <= steps; ++step) {
    parameter.grad = gradient(step);
    optimizer.begin_step(lr);
    optimizer.update({{&parameter, first}}, with_key(key));
    optimizer.end_step();
  }
  return parameter.value;
}

TEST(NarrowState, ACoinRoundsToANeighbourAndIsRightOnAverage) {
  const int64_t count = 200'000;
  for (const double number : {1.001, -1.001, 3.14159, 1e-20, 0.99999, -7e20}) {
    const at::Tensor from = at::full({count}, number, at::kFloat);
    const at::Tensor to = at::empty({count}, at::kBFloat16);
    round_by_coin({{to, from}}, {1, 2, 3}, 0);
    const at::Tensor got = to.to(at::kDouble);
    const double low = got.min().item<double>(), high = got.max().item<double>();
    EXPECT_LE(low, number);
    EXPECT_GE(high, number);
    EXPECT_LE(high - low, std::abs(number) / 127) << "one gap";
    // Within five standard deviations of a mean of so many coins.
    EXPECT_NEAR(got.mean().item<double>(), from[0].item<double>(),
                5 * (high - low) / 2 / std::sqrt(static_cast<double>(count)));
  }
  const at::Tensor exact = at::tensor({1.0, -0.5, 0.0, 384.0}, at::kFloat);
  const at::Tensor to = at::empty({4}, at::kBFloat16);
  round_by_coin({{to, exact}}, {1, 2, 3}, 0);
  EXPECT_TRUE(at::equal(to.to(at::kFloat), exact)) << "what is a bfloat16 number stays";
}

TEST(NarrowState, LoopsAndOperationsGiveTheSameDigits) {
  const float inf = std::numeric_limits<float>::infinity();
  at::Tensor from = at::sin(at::arange(100'003, at::kFloat)) * 3;
  from.slice(0, 0, 6).copy_(at::tensor({inf, -inf, std::nanf(""), -std::nanf(""), 1e-42f, 0.f}));
  const at::Tensor squares = from.square();
  const auto make = [&] { return at::empty({from.numel()}, at::kBFloat16); };
  const at::Tensor a = make(), b = make(), c = make(), d = make();
  const RoundingCoins coins{0xFEDCBA9876543210ull, 12345, 77};
  round_by_coin({{a, from}, {b, squares}}, coins, 5'000'000'000);
  round_by_coin_ref({{c, from}, {d, squares}}, coins, 5'000'000'000);
  EXPECT_TRUE(at::equal(a.view(at::kShort), c.view(at::kShort)));
  EXPECT_TRUE(at::equal(b.view(at::kShort), d.view(at::kShort)));
  EXPECT_EQ(a[0].item<float>(), inf);
  EXPECT_TRUE(std::isnan(a[2].item<float>()));
  // The two states have coins of their own, and so has every step.
  const at::Tensor halves = at::full({10'000}, 1 + 1.0 / 256, at::kFloat);  // between two numbers
  const at::Tensor one = at::empty({10'000}, at::kBFloat16), other = one.clone(),
                   later = one.clone();
  round_by_coin({{one, halves}, {other, halves}}, {1, 2, 3}, 0);
  round_by_coin({{later, halves}}, {1, 3, 3}, 0);
  EXPECT_NEAR(one.ne(other).to(at::kDouble).mean().item<double>(), 0.5, 0.03);
  EXPECT_NEAR(one.ne(later).to(at::kDouble).mean().item<double>(), 0.5, 0.03);
}

// Gradients of 1, then of 0.5: the mean square falls from 1 to 0.25, by at most 0.00075 in a step.
// The gap below 1 is 0.0039: rounded to the nearest it stays at 1 for ever.
TEST(NarrowState, AMeanSquareFollowsWhereRoundingToTheNearestStalls) {
  const int64_t count = 4096;
  OptimizerOptions options = narrow("adam");
  options.beta2 = 0.999;
  Optimizer adam(options);
  models::Parameter parameter = parameter_of(at::zeros({count}));
  double want = 0, nearest = 0;
  const auto rounded = [](double x) {
    return at::full({}, x, at::kFloat).to(at::kBFloat16).item<double>();
  };
  const auto gradient = [](int step) { return step <= 8000 ? 1.0 : 0.5; };
  const auto follow = [&](int from, int steps) {
    for (int step = from; step < from + steps; ++step) {
      parameter.grad = at::full({count}, gradient(step), at::kFloat);
      adam.begin_step(0);
      adam.update({{&parameter, 0}}, with_key(7));
      adam.end_step();
      want = 0.999 * want + 0.001 * gradient(step) * gradient(step);
      nearest = rounded(0.999 * nearest + 0.001 * gradient(step) * gradient(step));
    }
  };
  const auto mean_square = [&] {
    return adam.state(parameter).tensors[1].second.to(at::kDouble).mean().item<double>();
  };
  follow(1, 1500);
  EXPECT_NEAR(mean_square() / want, 1, 0.01);
  EXPECT_LT(nearest / want, 0.35) << "what this is for: it stops where a step is half a gap";
  follow(8001, 2000);
  EXPECT_NEAR(mean_square() / want, 1, 0.01);
  EXPECT_EQ(adam.state(parameter).tensors[0].second.scalar_type(), at::kBFloat16);
  EXPECT_EQ(adam.state_bytes(), 2 * 2 * count);
}

TEST(NarrowState, WeightsFollowThoseOfWideStates) {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    const auto gradient = [](int step) {
      return at::cos(at::arange(3000, at::kFloat) * 0.01 + 0.05 * step);
    };
    OptimizerOptions options = narrow(name);
    Optimizer narrow_states(options);
    options.state_dtype = "auto";
    Optimizer wide_states(options);
    const at::Tensor start = at::linspace(-1, 1, 3000);
    models::Parameter a = parameter_of(start), b = parameter_of(start);
    const at::Tensor got = after_steps(narrow_states, a, 0.01, 100, gradient);
    const at::Tensor want = after_steps(wide_states, b, 0.01, 100, gradient);
    EXPECT_LT((got - want).norm().item<double>(), 0.01 * (want - start).norm().item<double>())
        << name;
    EXPECT_GT((got - want).norm().item<double>(), 0) << name;
  }
}

// Another number of ranks, another seed, a parameter of more than one slice.
TEST(NarrowState, DigitsDependOnSeedStepAndPlaceAlone) {
  const int64_t count = (int64_t{1} << 22) + 5000, cut = 1'500'001;
  const at::Tensor start = at::linspace(-1, 1, count);
  const auto gradient = [&](int step) { return at::sin(start * 40 + step); };
  const auto run = [&](int64_t first, int64_t length, uint64_t key) {
    Optimizer adam(narrow("adamw"));
    models::Parameter part = parameter_of(start.narrow(0, first, length));
    return after_steps(
        adam, part, 0.01, 2, [&](int step) { return gradient(step).narrow(0, first, length); },
        first, key);
  };
  const at::Tensor whole = run(0, count, 7);
  EXPECT_TRUE(at::equal(at::cat({run(0, cut, 7), run(cut, count - cut, 7)}), whole));
  EXPECT_FALSE(at::equal(run(0, count, 8), whole));
}

// bfloat16 weights: their states are rounded by coins, and not to the nearest.
TEST(NarrowState, AlsoBesideWeightsOf16Bits) {
  Optimizer adam(narrow("adam"));
  models::Parameter parameter = parameter_of(at::ones({512}).to(at::kBFloat16));
  after_steps(adam, parameter, 0.05, 5, [](int) { return at::ones({512}); });
  EXPECT_EQ(parameter.value.scalar_type(), at::kBFloat16);
  EXPECT_NEAR(parameter.value.to(at::kDouble).mean().item<double>(), 0.75, 0.01);
}

}  // namespace
}  // namespace moonshard::optim
