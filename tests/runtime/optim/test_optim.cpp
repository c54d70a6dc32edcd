#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/optim/optimizer.h"

namespace moonshard::optim {
namespace {

std::vector<std::unique_ptr<models::Parameter>> one_parameter(at::ScalarType type) {
  std::vector<std::unique_ptr<models::Parameter>> list;
  list.push_back(std::make_unique<models::Parameter>());
  list[0]->value = at::linspace(-1, 1, 7, type);
  return list;
}

TEST(Optimizer, SgdMovesByTheRateTimesTheGradient) {
  auto parameters = one_parameter(at::kDouble);
  const at::Tensor before = parameters[0]->value.clone();
  OptimizerOptions options;
  options.lr = 0.25;
  const auto sgd = std::make_unique<Optimizer>(options);
  sgd->step(parameters, options.lr);
  EXPECT_TRUE(at::equal(parameters[0]->value, before)) << "no gradient, no step";
  parameters[0]->grad = at::full({7}, 2.0, at::kDouble);
  sgd->step(parameters, options.lr);
  EXPECT_TRUE(at::allclose(parameters[0]->value, before - 0.5, 1e-15, 1e-15));
  EXPECT_EQ(sgd->state_bytes(), 0);
}

// The paper's Algorithm 2, written out.
TEST(Optimizer, AdamWFollowsThePapersFormulas) {
  auto parameters = one_parameter(at::kDouble);
  OptimizerOptions options;
  options.optimizer = "adamw";
  options.lr = 0.1;
  const auto adamw = std::make_unique<Optimizer>(options);
  at::Tensor want = parameters[0]->value.clone(), mean = at::zeros_like(want),
             square = at::zeros_like(want);
  for (int step = 1; step <= 5; ++step) {
    const at::Tensor grad = at::sin(at::arange(7, at::kDouble) + step);
    parameters[0]->grad = grad.clone();
    adamw->step(parameters, options.lr);
    mean = 0.9 * mean + 0.1 * grad;
    square = 0.95 * square + 0.05 * grad * grad;
    const at::Tensor mean_hat = mean / (1 - std::pow(0.9, step)),
                     square_hat = square / (1 - std::pow(0.95, step));
    want = want - 0.1 * 0.1 * want - 0.1 * mean_hat / (square_hat.sqrt() + 1e-8);
    EXPECT_LT((parameters[0]->value - want).abs().max().item<double>(), 1e-12) << "step " << step;
  }
  EXPECT_EQ(adamw->state_bytes(), 2 * 7 * 8);
}

TEST(Optimizer, AdamAddsTheDecayToTheGradient) {
  auto parameters = one_parameter(at::kDouble);
  OptimizerOptions options;
  options.optimizer = "adam";
  options.weight_decay = 0.3;
  const auto adam = std::make_unique<Optimizer>(options);
  at::Tensor want = parameters[0]->value.clone(), mean = at::zeros_like(want),
             square = at::zeros_like(want);
  for (int step = 1; step <= 4; ++step) {
    const at::Tensor raw = at::cos(at::arange(7, at::kDouble) * step);
    parameters[0]->grad = raw.clone();
    adam->step(parameters, 0.05);
    const at::Tensor grad = raw + 0.3 * want;
    mean = 0.9 * mean + 0.1 * grad;
    square = 0.95 * square + 0.05 * grad * grad;
    want = want - 0.05 * (mean / (1 - std::pow(0.9, step))) /
                      ((square / (1 - std::pow(0.95, step))).sqrt() + 1e-8);
    EXPECT_LT((parameters[0]->value - want).abs().max().item<double>(), 1e-12) << "step " << step;
  }
}

TEST(Optimizer, MomentumSumsGradientsWithADecay) {
  auto parameters = one_parameter(at::kDouble);
  OptimizerOptions options;
  options.momentum = 0.5;
  const auto sgd = std::make_unique<Optimizer>(options);
  at::Tensor want = parameters[0]->value.clone();
  for (const double sum : {1.0, 1.5, 1.75}) {
    parameters[0]->grad = at::ones({7}, at::kDouble);
    sgd->step(parameters, 0.1);
    want = want - 0.1 * sum;
    EXPECT_LT((parameters[0]->value - want).abs().max().item<double>(), 1e-15);
  }
  EXPECT_EQ(sgd->state_bytes(), 7 * 8);
}

TEST(LearningRate, RisesThenFallsAlongItsSchedule) {
  OptimizerOptions options;
  options.lr = 2;
  EXPECT_EQ(learning_rate(options, 1), 2);
  EXPECT_EQ(learning_rate(options, 1000000), 2);
  options.lr_warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(options, 1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(options, 4), 2);
  options.lr_schedule = "linear";
  EXPECT_THROW(learning_rate(options, 5), UsageError) << "a falling schedule needs an end";
  options.lr_total_steps = 14;
  options.lr_min_ratio = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(options, 9), 2 * (0.1 + 0.9 * 0.5));
  EXPECT_DOUBLE_EQ(learning_rate(options, 14), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(options, 99), 0.2);
  options.lr_schedule = "cosine";
  EXPECT_DOUBLE_EQ(learning_rate(options, 9), 2 * (0.1 + 0.9 * 0.5));
  EXPECT_NEAR(learning_rate(options, 5), 2 * (0.1 + 0.9 * (1 + std::cos(M_PI * 0.1)) / 2), 1e-12);
}

}  // namespace
}  // namespace moonshard::optim
