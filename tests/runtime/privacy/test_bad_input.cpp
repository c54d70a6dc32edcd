// Input that goes wrong gives right answers or a clear error, in every engine, and loses nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/models/registry.h"
#include "runtime/privacy/layer_rules.h"
#include "runtime/train/trainer.h"
#include "tests/support/extreme_norms.h"

namespace moonshard {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<models::Model> tiny(const char* name, const char* dtype = "float64") {
  models::ModelOptions options;
  options.model = name;
  options.dtype = dtype;
  options.device = "cpu";
  if (std::string(name) == "linear-tiny") {
    options.hidden_dim = 12;
    options.num_layers = 2;
  }
  return models::make_model(options);
}

privacy::ClipOptions quiet(const std::string& mode, double bound = 1) {
  privacy::ClipOptions clip;
  clip.mode = mode;
  clip.noise_multiplier = 0;
  clip.max_grad_norm = bound;
  return clip;
}

optim::OptimizerOptions sgd(double lr = 1) {
  optim::OptimizerOptions options;
  options.lr = lr;
  return options;
}

std::vector<at::Tensor> values(const models::Model& model) {
  std::vector<at::Tensor> list;
  for (const auto& parameter : model.parameters()) list.push_back(parameter->value.clone());
  return list;
}

double largest_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  return largest;
}

class PrivateEngines : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, PrivateEngines,
                         ::testing::Values("materialize", "ghost", "flash", "bookkeeping",
                                           "flash_bookkeeping", "auto"),
                         [](const auto& test) { return test.param; });

TEST_P(PrivateEngines, DropASampleWhoseLossIsNotANumber) {
  for (const char* name : {"linear-tiny", "dit-tiny"}) {
    const auto model = tiny(name), without = tiny(name);
    Batch batch = data::SyntheticData(model->options(), 3, 5).next();
    const Batch rest = batch.slice(1, 2);
    batch.targets = batch.targets.clone();
    batch.targets[0].fill_(std::nan(""));
    train::StepOptions three;
    three.expected_batch_size = 3;
    const auto report =
        train::Trainer({model, quiet(GetParam()), sgd(), nullptr, three}).step(batch);
    train::Trainer({without, quiet(GetParam()), sgd(), nullptr, three}).step(rest);
    EXPECT_EQ(report.dropped, 1);
    EXPECT_TRUE(std::isfinite(report.loss));
    EXPECT_EQ(report.factors[0], 0);
    if (std::string(name) == "linear-tiny") {  // a DiT drops other labels in a smaller batch
      EXPECT_LT(largest_difference(values(*model), values(*without)), 1e-12);
    }
    for (const auto& value : values(*model)) EXPECT_TRUE(value.isfinite().all().item<bool>());
  }
}

TEST_P(PrivateEngines, LeaveAZeroGradientAtZero) {
  const auto model = tiny("linear-tiny");
  Batch batch = data::SyntheticData(model->options(), 2, 1).next();
  batch.targets = model->forward(batch).detach();
  const auto before = values(*model);
  const auto report = train::Trainer({model, quiet(GetParam()), sgd(), nullptr}).step(batch);
  EXPECT_THAT(report.norms, ::testing::Each(0.0));
  EXPECT_THAT(report.factors, ::testing::Each(1.0));
  EXPECT_EQ(largest_difference(before, values(*model)), 0);
}

TEST_P(PrivateEngines, TakeAnEmptyBatchAsNoiseAlone) {
  const auto model = tiny("linear-tiny");
  const Batch batch = data::SyntheticData(model->options(), 2, 1).next();
  privacy::ClipOptions clip = quiet(GetParam(), 2);
  clip.noise_multiplier = 1.5;
  train::StepOptions step;
  step.expected_batch_size = 8;
  const auto before = values(*model);
  const auto report = train::Trainer({.model = model,
                                      .clip = clip,
                                      .optimizer = sgd(),
                                      .step = step,
                                      .privacy = privacy::reproducible_noise()})
                          .step(batch.slice(0, 0));
  EXPECT_EQ(report.batch_size, 0);
  for (size_t i = 0; i < before.size(); ++i) {
    at::Tensor noise = at::zeros_like(before[i]);
    kernels::add_counter_noise(noise, 3.0, {0, 1, static_cast<uint32_t>(i)});
    EXPECT_LT((before[i] - noise / 8 - model->parameters()[i]->value).abs().max().item<double>(),
              1e-14);
  }
}

TEST_P(PrivateEngines, NeedADenominatorForAnEmptyBatch) {
  const auto model = tiny("linear-tiny");
  const Batch batch = data::SyntheticData(model->options(), 2, 1).next();
  train::Trainer trainer({model, quiet(GetParam()), sgd(), nullptr});
  EXPECT_THROW(
      try { trainer.step(batch.slice(0, 0)); } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("expected_batch_size"));
        throw;
      },
      UsageError);
}

// Squares of such numbers leave the range of float32; the norm itself does not.
TEST_P(PrivateEngines, FindHugeAndTinyNorms) {
  for (const double scale : {1e22, 1e-22}) {
    const auto single = tiny("linear-tiny", "float32"), wide = tiny("linear-tiny");
    Batch batch = data::SyntheticData(single->options(), 3, 1).next();
    batch.targets = batch.targets * scale;
    if (scale < 1) batch.inputs = batch.inputs * scale;
    Batch exact = batch;
    exact.inputs = batch.inputs.to(at::kDouble);
    exact.targets = batch.targets.to(at::kDouble);
    const auto got = train::Trainer({single, quiet(GetParam(), 1e-3), sgd(0), nullptr}).step(batch);
    const auto want =
        train::Trainer({wide, quiet("materialize", 1e-3), sgd(0), nullptr}).step(exact);
    for (size_t b = 0; b < 3; ++b) {
      EXPECT_NEAR(got.norms[b] / want.norms[b], 1, 1e-5) << "scale " << scale;
      EXPECT_NEAR(got.factors[b] / want.factors[b], 1, 1e-5) << "scale " << scale;
    }
  }
}

// The same input at every position and output gradients in pairs that take each other out: the norm
// is tiny beside its parts, and the sum's rounding must not carry the sample over the bound.
TEST_P(PrivateEngines, KeepASampleOfCancellingPositionsWithinTheBound) {
  for (const char* format : {"float32", "bfloat16"}) {
    for (const char* clipping : {"flat", "automatic", "per_layer"}) {
      for (const double scale : {1e2, 1e4, 1e6}) {
        models::ModelOptions options;
        options.model = "linear-tiny";
        options.device = "cpu";
        options.param_dtype = format;
        options.hidden_dim = 8;
        options.num_layers = 1;
        const std::shared_ptr<models::Model> model = models::make_model(options);
        for (const auto& parameter : model->parameters()) parameter->value.zero_();
        at::manual_seed(3);
        Batch batch;
        batch.inputs = at::rand({1, 1, 8}).expand({1, 16, 8}).contiguous();
        const at::Tensor half = at::randn({1, 8, 8}) * scale;
        batch.targets = at::stack({half, -half * (1 + 1e-6)}, 2).reshape({1, 16, 8});
        privacy::ClipOptions clip = quiet(GetParam());
        clip.clipping = clipping;
        train::Trainer trainer({model, clip, sgd(), nullptr});
        trainer.step(batch);
        double squares = 0;  // SGD with lr 1 from zero: the weights are the clipped gradient
        for (const auto& value : values(*model))
          squares += value.to(at::kDouble).square().sum().item<double>();
        EXPECT_LE(std::sqrt(squares), 1.001) << format << " " << clipping << " " << scale;
      }
    }
  }
}

TEST(Trainer, SaysSoWhenTheWeightsAreNoNumbers) {
  const auto model = tiny("linear-tiny");
  const Batch batch = data::SyntheticData(model->options(), 2, 1).next();
  model->parameter("layers.1.bias").value.fill_(std::nan(""));
  train::Trainer trainer({model, quiet("ghost"), sgd(), nullptr});
  try {
    trainer.step(batch);
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layers.1.bias"));
  }
}

TEST(Dit, DropsTheSameLabelsHoweverAStepIsSplit) {
  const auto whole = tiny("dit-tiny"), split = tiny("dit-tiny");
  const Batch batch = data::SyntheticData(whole->options(), 6, 1).next();
  for (const auto& model : {whole, split})
    for (const auto& parameter : model->parameters())
      kernels::add_counter_noise(parameter->value, 0.05, {1, 1, parameter->index});
  train::StepOptions parts;
  parts.grad_accum = 3;
  const auto from_seed = privacy::reproducible_noise();
  train::Trainer one(
      {.model = whole, .clip = quiet("ghost"), .optimizer = sgd(), .privacy = from_seed});
  train::Trainer three({.model = split,
                        .clip = quiet("ghost"),
                        .optimizer = sgd(),
                        .step = parts,
                        .privacy = from_seed});
  for (int step = 0; step < 3; ++step) {
    one.step(batch);
    three.step(batch);
  }
  EXPECT_LT(largest_difference(values(*whole), values(*split)), 1e-12);
}

// A sample more shifts the others' places: whoever knows the draws sees their labels change.
TEST(Dit, DropsLabelsByASecretInPrivateTraining) {
  const auto losses = [](const char* mode, bool secure) {
    const auto model = tiny("dit-tiny");
    for (const auto& parameter : model->parameters())
      kernels::add_counter_noise(parameter->value, 0.05, {1, 1, parameter->index});
    const Batch batch = data::SyntheticData(model->options(), 6, 1).next();
    privacy::PrivacyOptions privacy;
    privacy.secure = secure;
    std::vector<double> list;
    train::Trainer trainer(
        {.model = model, .clip = quiet(mode), .optimizer = sgd(0), .privacy = privacy});
    for (int step = 0; step < 12; ++step) list.push_back(trainer.step(batch).loss);
    return list;
  };
  EXPECT_EQ(losses("ghost", false), losses("ghost", false));
  EXPECT_EQ(losses("none", true), losses("none", true)) << "plain training repeats";
  EXPECT_NE(losses("ghost", true), losses("ghost", true));
}

TEST(PlainEngine, RefusesALossThatIsNotFiniteAndKeepsTheWeights) {
  const auto model = tiny("linear-tiny");
  Batch batch = data::SyntheticData(model->options(), 3, 1).next();
  batch.targets[1].fill_(std::numeric_limits<double>::infinity());
  const auto before = values(*model);
  train::Trainer trainer({model, quiet("none"), sgd(), nullptr});
  try {
    trainer.step(batch);
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected finite losses, got inf in sample 2 of 3"));
  }
  EXPECT_EQ(largest_difference(before, values(*model)), 0);
  batch.targets[1].zero_();
  EXPECT_EQ(trainer.step(batch).step, 1) << "a refused step does not count";
}

TEST(PlainEngine, RefusesAnEmptyBatch) {
  const auto model = tiny("linear-tiny");
  const Batch batch = data::SyntheticData(model->options(), 2, 1).next();
  EXPECT_THROW(train::Trainer({model, quiet("none"), sgd(), nullptr}).step(batch.slice(0, 0)),
               UsageError);
}

TEST(Ids, OutOfRangeAreNamedWithTheFieldAndTheWeightsStay) {
  const auto model = tiny("llama3-tiny");
  Batch batch = data::SyntheticData(model->options(), 2, 4).next();
  batch.input_ids[1][2] = 5000;
  const auto before = values(*model);
  try {
    train::Trainer({model, quiet("ghost"), sgd(), nullptr}).step(batch);
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("batch field 'input_ids': expected 0 to 1023, got 5000"));
  }
  EXPECT_EQ(largest_difference(before, values(*model)), 0);
}

// T17: repeated ids add up before the norm; the padding row has none.
TEST(Embedding, NormsOfEqualIdsAndOfPadding) {
  models::Parameter weight;
  weight.name = "e.weight";
  weight.value = at::zeros({9, 4}, at::kDouble);
  models::ParamLayer layer;
  layer.name = "e";
  layer.kind = models::kinds::kEmbedding;
  layer.weight = &weight;
  layer.padding_id = 2;
  const at::Tensor ids = at::tensor({7, 7, 7, 7, 2, 2, 3, 3}, at::kLong).view({2, 4});
  const at::Tensor g = at::arange(32, at::kDouble).view({2, 4, 4});
  const at::Tensor squares = privacy::squared_norms(layer, ids, g, {});
  EXPECT_DOUBLE_EQ(squares[0].item<double>(), g[0].sum(0).square().sum().item<double>());
  EXPECT_DOUBLE_EQ(squares[1].item<double>(), (g[1][2] + g[1][3]).square().sum().item<double>());
}

// T18: a bias's norm is that of the summed output gradient, not 1 and not the number of positions.
TEST(Bias, NormIsThatOfTheSummedOutputGradient) {
  models::Parameter weight, bias;
  weight.value = at::zeros({3, 5}, at::kDouble);
  bias.value = at::zeros({3}, at::kDouble);
  weight.trainable = false;
  models::ParamLayer layer;
  layer.name = "l";
  layer.weight = &weight;
  layer.bias = &bias;
  for (const bool positions : {false, true}) {
    const at::Tensor g = at::arange(positions ? 24 : 6, at::kDouble)
                             .view(positions ? at::IntArrayRef{2, 4, 3} : at::IntArrayRef{2, 3});
    const at::Tensor a =
        at::ones(positions ? at::IntArrayRef{2, 4, 5} : at::IntArrayRef{2, 5}, at::kDouble);
    const at::Tensor sum = positions ? g.sum(1) : g;
    EXPECT_TRUE(at::allclose(privacy::squared_norms(layer, a, g, {}), sum.square().sum(1)));
  }
}

// A ghost norm is a sum with signs. Tokens that cancel must not make it smaller than it is.
TEST(GhostNorm, IsRightWhereTokensCancel) {
  models::Parameter weight;
  weight.value = at::zeros({24, 40}, at::kFloat);
  models::ParamLayer layer;
  layer.name = "l";
  layer.weight = &weight;
  at::Tensor a = at::randn({2, 64, 40}), g = at::randn({2, 64, 24});
  for (int64_t t = 1; t < 64; t += 2) {  // pairs that nearly take each other out
    a.select(1, t).copy_(a.select(1, t - 1));
    g.select(1, t).copy_(-g.select(1, t - 1) * (1 + 1e-4));
  }
  const at::Tensor want =
      at::bmm(g.to(at::kDouble).transpose(1, 2), a.to(at::kDouble)).flatten(1).square().sum(1);
  for (const auto method :
       {privacy::NormMethod::Ghost, privacy::NormMethod::InputLength, privacy::NormMethod::Width}) {
    const at::Tensor got = privacy::squared_norms(layer, a, g, {method, 16});
    // Never below the truth (the inputs carry rounding of 6e-8 on numbers 1e4 times the result);
    // the sum's own rounding is counted in.
    EXPECT_GT((got / want).min().item<double>(), 1 - 2e-3) << static_cast<int>(method);
    EXPECT_LT((got / want).max().item<double>(), 1.2) << static_cast<int>(method);
  }
}

TEST(Norms, AreNeverTooSmallAtTheEndsOfTheRange) {
  expect_norms_hold_at_all_sizes(c10::kCPU);
}

}  // namespace
}  // namespace moonshard
