// Engines against an independent reference: batch-of-one backward by plain autograd, norms, factors
// and the clipped sum by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"
#include "tests/support/plain_models.h"
#include "tests/support/tensors.h"

namespace moonshard {
namespace {

struct Setting {
  const char* model;
  const char* task;
  const char* dtype;
  double tolerance;  ///< relative: rounding of the format, grown by the depth of the model
};

class Engines : public ::testing::TestWithParam<Setting> {
 protected:
  std::shared_ptr<models::Model> make() const {
    models::ModelOptions options;
    options.model = GetParam().model;
    options.task = GetParam().task;
    options.dtype = GetParam().dtype;
    options.device = "cpu";
    options.seed = 3;
    return models::make_model(options);
  }
};

TEST_P(Engines, NoneGivesTheMeanGradient) {
  const auto model = make();
  const Batch batch = data::SyntheticData(model->options(), 5, 9).next();
  std::map<std::string, at::Tensor> want;
  for (const auto& [name, rows] : per_sample_reference(*model, batch)) want[name] = rows.mean(0);
  optim::OptimizerOptions sgd;
  sgd.lr = 1;
  train::Trainer trainer({model, {}, sgd, nullptr});
  const auto got = step_gradients(*model, [&] { trainer.step(batch); });
  EXPECT_LT(relative_difference(got, want), GetParam().tolerance);
}

TEST_P(Engines, MaterializeClipsEverySampleToItsBound) {
  const auto model = make();
  const int64_t B = 6;
  const Batch batch = data::SyntheticData(model->options(), B, 9).next();
  const auto rows = per_sample_reference(*model, batch);
  at::Tensor squares = at::zeros({B}, at::kDouble);
  for (const auto& [name, gradient] : rows)
    squares += gradient.to(at::kDouble).flatten(1).square().sum(1);
  const at::Tensor norms = squares.sqrt();

  privacy::ClipOptions clip;
  clip.mode = "materialize";
  clip.noise_multiplier = 0;
  clip.max_grad_norm =
      norms.median().item<double>() * 1.0001;  // about half of the samples are clipped
  const at::Tensor factors = (clip.max_grad_norm / (norms + 1e-6)).clamp_max(1);
  std::map<std::string, at::Tensor> want;
  for (const auto& [name, gradient] : rows) {
    std::vector<int64_t> shape(static_cast<size_t>(gradient.dim()), 1);
    shape[0] = B;
    want[name] = (gradient.to(at::kDouble) * factors.view(shape)).sum(0) / static_cast<double>(B);
  }
  optim::OptimizerOptions sgd;
  sgd.lr = 1;
  train::Trainer trainer({model, clip, sgd, nullptr});
  train::StepReport report;
  const auto got = step_gradients(*model, [&] { report = trainer.step(batch); });
  for (int64_t b = 0; b < B; ++b) {
    const double want_norm = norms[b].item<double>();
    EXPECT_NEAR(report.norms[static_cast<size_t>(b)], want_norm, GetParam().tolerance * want_norm);
  }
  EXPECT_LT(relative_difference(got, want), GetParam().tolerance);
  EXPECT_DOUBLE_EQ(report.clip_fraction,
                   norms.gt(clip.max_grad_norm).to(at::kDouble).mean().item<double>());
  EXPECT_GT(report.clip_fraction, 0.1);
  EXPECT_LT(report.clip_fraction, 0.9);
}

INSTANTIATE_TEST_SUITE_P(All, Engines,
                         ::testing::Values(Setting{"linear-tiny", "regress", "float64", 1e-10},
                                           Setting{"linear-tiny", "regress", "float32", 1e-5},
                                           Setting{"llama3-tiny", "classify", "float64", 1e-10},
                                           Setting{"llama3-tiny", "classify", "float32", 1e-5},
                                           Setting{"llama3-tiny", "lm", "float64", 1e-10},
                                           Setting{"llama3-tiny", "lm", "float32", 1e-5}));

std::shared_ptr<models::Model> tiny(const char* dtype = "float64") {
  models::ModelOptions options;
  options.model = "linear-tiny";
  options.dtype = dtype;
  options.device = "cpu";
  options.hidden_dim = 16;
  options.num_layers = 2;
  return models::make_model(options);
}

privacy::ClipOptions materialize(double noise) {
  privacy::ClipOptions clip;
  clip.mode = "materialize";
  clip.noise_multiplier = noise;
  return clip;
}

TEST(Noise, IsAddedExactlyOnceToTheSumOverTheBatch) {
  const auto quiet_model = tiny(), noisy_model = tiny();
  const Batch batch = data::SyntheticData(quiet_model->options(), 4, 1).next();
  optim::OptimizerOptions sgd;
  sgd.lr = 1;
  privacy::ClipOptions clip = materialize(1.5);
  clip.max_grad_norm = 2;
  privacy::ClipOptions quiet_clip = clip;
  quiet_clip.noise_multiplier = 0;
  train::Trainer plain({quiet_model, quiet_clip, sgd, nullptr});
  train::Trainer noisy({.model = noisy_model,
                        .clip = clip,
                        .optimizer = sgd,
                        .privacy = privacy::reproducible_noise()});
  plain.step(batch);
  noisy.step(batch);
  for (size_t i = 0; i < quiet_model->parameters().size(); ++i) {
    const auto& parameter = quiet_model->parameters()[i];
    at::Tensor want = at::zeros_like(parameter->value);
    kernels::add_counter_noise(want, 1.5 * 2, {0, 1, parameter->index});
    const at::Tensor got =
        (parameter->value - noisy_model->parameters()[i]->value) * 4.0;  // the batch
    EXPECT_LT((got - want).abs().max().item<double>(), 1e-12) << parameter->name;
  }
}

TEST(Noise, DiffersFromStepToStep) {
  const auto model = tiny();
  optim::OptimizerOptions sgd;
  sgd.lr = 1;
  train::Trainer trainer(
      {model, materialize(1), sgd, std::make_unique<data::SyntheticData>(model->options(), 2, 1)});
  const at::Tensor start = model->parameters()[0]->value.clone();
  trainer.step();
  const at::Tensor first = model->parameters()[0]->value - start;
  const at::Tensor middle = model->parameters()[0]->value.clone();
  trainer.step();
  const at::Tensor second = model->parameters()[0]->value - middle;
  // Secret noise is on a grid of 1/64 of its deviation: now and then two draws are equal.
  EXPECT_LT((second - first).eq(0).to(at::kDouble).mean().item<double>(), 0.05);
}

TEST(ClipFactors, BoundTheContributionAndDropWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor norms = at::tensor({0.0, 0.5, 2.0, infinity, std::nan("")}, at::kDouble);
  const at::Tensor factors = privacy::clip_factors(norms, 1.0);
  EXPECT_EQ(factors[0].item<double>(), 1);
  EXPECT_EQ(factors[1].item<double>(), 1);
  EXPECT_NEAR(factors[2].item<double>(), 0.5, 1e-6);
  EXPECT_EQ(factors[3].item<double>(), 0);
  EXPECT_EQ(factors[4].item<double>(), 0);
  EXPECT_LE((norms.slice(0, 0, 3) * factors.slice(0, 0, 3)).max().item<double>(), 1.0);
}

TEST(Materialize, ASampleWithoutAFiniteGradientContributesNothing) {
  const auto model = tiny(), without = tiny();
  Batch batch = data::SyntheticData(model->options(), 3, 1).next();
  Batch rest;
  rest.inputs = batch.inputs.slice(0, 1).clone();
  rest.targets = batch.targets.slice(0, 1).clone();
  batch.targets[0].fill_(std::numeric_limits<double>::infinity());
  optim::OptimizerOptions sgd;
  sgd.lr = 3;  // of batch 3; the other divides by 2
  train::Trainer({model, materialize(0), sgd, nullptr}).step(batch);
  sgd.lr = 2;
  train::Trainer({without, materialize(0), sgd, nullptr}).step(rest);
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_LT((model->parameters()[i]->value - without->parameters()[i]->value)
                  .abs()
                  .max()
                  .item<double>(),
              1e-12);
  }
}

TEST(Frozen, ParametersStayAndHaveNoPartInTheNorm) {
  const auto model = tiny();
  const Batch batch = data::SyntheticData(model->options(), 3, 1).next();
  const auto rows = per_sample_reference(*model, batch);
  model->parameter("layers.0.weight").trainable = false;
  model->parameter("layers.1.bias").trainable = false;
  const at::Tensor frozen = model->parameter("layers.0.weight").value.clone();
  at::Tensor squares = at::zeros({3}, at::kDouble);
  for (const char* name : {"layers.0.bias", "layers.1.weight"})
    squares += rows.at(name).flatten(1).square().sum(1);
  optim::OptimizerOptions sgd;
  sgd.lr = 1;
  const train::StepReport report =
      train::Trainer({model, materialize(1), sgd, nullptr}).step(batch);
  EXPECT_TRUE(at::equal(model->parameter("layers.0.weight").value, frozen));
  for (int64_t b = 0; b < 3; ++b)
    EXPECT_NEAR(report.norms[static_cast<size_t>(b)], squares[b].sqrt().item<double>(), 1e-10);
}

TEST(Frozen, WhatIsFrozenBetweenStepsHasNoPartFromThenOn) {
  for (const char* mode : {"materialize", "bookkeeping", "auto"}) {
    const auto model = tiny();
    const Batch batch = data::SyntheticData(model->options(), 3, 1).next();
    privacy::ClipOptions clip = materialize(1);
    clip.mode = mode;
    optim::OptimizerOptions still;
    still.lr = 0;
    train::Trainer trainer({model, clip, still, nullptr});
    const auto rows = per_sample_reference(*model, batch);
    for (const bool is_trained : {true, false, false, true}) {
      model->parameter("layers.0.weight").trainable = is_trained;
      at::Tensor squares = at::zeros({3}, at::kDouble);
      for (const auto& [name, gradient] : rows)
        if (is_trained || name != "layers.0.weight") squares += gradient.flatten(1).square().sum(1);
      const train::StepReport report = trainer.step(batch);
      for (int64_t b = 0; b < 3; ++b)
        EXPECT_NEAR(report.norms[static_cast<size_t>(b)], squares[b].sqrt().item<double>(), 1e-10)
            << mode;
    }
  }
}

}  // namespace
}  // namespace moonshard
