// Dropout of adapters: masks by sample, layer and place, the same in every pass over a sample, and
// none outside of training. That clipping stays exact: moonshard verify --options lora+dropout.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "runtime/data/source.h"
#include "runtime/models/blocks/dropout.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"

namespace moonshard::models {
namespace {

ModelOptions adapted(double dropout, const char* model = "llama3-tiny") {
  ModelOptions options;
  options.model = model;
  options.device = "cpu";
  options.dtype = options.param_dtype = "float64";
  options.num_layers = 1;
  options.seed = 5;
  options.lora_rank = 2;
  options.lora_dropout = dropout;
  return options;
}

const ParamLayer& adapted_layer(const Model& model, int which) {
  for (const auto& layer : model.layers())
    if (layer->lora_up != nullptr && which-- == 0) return *layer;
  throw std::runtime_error("no such layer");
}

at::Tensor mask_of(const at::Tensor& x, const ParamLayer& layer, const at::Tensor& words) {
  return kernels::sample_dropout_mask(x, dropout_coins(layer, words).value());
}

TEST(LoraDropout, DropsItsShareAndKeepsTheMean) {
  const auto model = make_model(adapted(0.3));
  const ParamLayer& layer = adapted_layer(*model, 0);
  const at::Tensor x = at::ones({4, 100, 64}, at::kDouble);
  const at::Tensor words = at::tensor({1, 2, 3, -4}, at::kLong);
  const at::Tensor mask = mask_of(x, layer, words);
  const double n = 4 * 100 * 64, deviation = std::sqrt(0.3 * 0.7 / n);
  EXPECT_NEAR(mask.eq(0).to(at::kDouble).mean().item<double>(), 0.3, 5 * deviation);
  const double dropped = std::round(0.3 * 65536) / 65536;
  EXPECT_NEAR(mask.max().item<double>(), 1 / (1 - dropped), 1e-15);
  // Numbers that share a word of coins have nothing to do with each other.
  const at::Tensor in_fours = mask.eq(0).to(at::kDouble).view({-1, 4});
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      const double both = (in_fours.select(1, i) * in_fours.select(1, j)).mean().item<double>();
      EXPECT_NEAR(both, 0.09, 5 * std::sqrt(0.09 * 0.91 * 4 / n)) << i << ", " << j;
    }
  }
  // No position, column or sample has a mask of its own kind.
  for (const int64_t dim : {0, 1, 2}) {
    const at::Tensor by_place = mask.eq(0).to(at::kDouble).transpose(0, dim).flatten(1).mean(1);
    const double of_place = std::sqrt(0.3 * 0.7 / (n / static_cast<double>(by_place.size(0))));
    EXPECT_LT((by_place - 0.3).abs().max().item<double>(), 5 * of_place) << dim;
  }
}

TEST(LoraDropout, MasksDependOnWordLayerAndPlaceAlone) {
  const auto model = make_model(adapted(0.5));
  const ParamLayer &layer = adapted_layer(*model, 0), &other = adapted_layer(*model, 1);
  const at::Tensor x = at::ones({3, 8, 64}, at::kDouble), words = at::tensor({7, 8, 9}, at::kLong);
  const at::Tensor mask = mask_of(x, layer, words);
  EXPECT_TRUE(
      at::equal(mask_of(x.narrow(0, 1, 1), layer, words.narrow(0, 1, 1)), mask.narrow(0, 1, 1)))
      << "a batch of one";
  const auto differ = [](const at::Tensor& a, const at::Tensor& b) {
    return a.ne(b).to(at::kDouble).mean().item<double>();
  };
  EXPECT_NEAR(differ(mask[0], mask[1]), 0.5, 0.15) << "neighbouring words";
  EXPECT_NEAR(differ(mask, mask_of(x, other, words)), 0.5, 0.1) << "layers";
  EXPECT_FALSE(dropout_coins(layer, {}).has_value()) << "no step";
  // Samples whose numbers leave a word half used.
  const at::Tensor odd = mask_of(at::ones({3, 3, 7}, at::kFloat), layer, words);
  EXPECT_EQ(odd.sizes(), (at::IntArrayRef{3, 3, 7}));
  EXPECT_TRUE(at::equal(odd.to(at::kDouble).flatten(1), mask.flatten(1).narrow(1, 0, 21)));
  EXPECT_EQ(mask_of(at::ones({3, 3, 7}, at::kBFloat16), layer, words).scalar_type(), at::kBFloat16);
}

TEST(LoraDropout, EveryStepAndSampleHasWordsOfItsOwn) {
  const auto model = make_model(adapted(0.1));
  const Batch batch = data::SyntheticData(model->options(), 4, 5).next();
  const RandomWords words(uint64_t{3});
  const at::Tensor whole = model->prepare(batch, words, 6, 0).words;
  EXPECT_TRUE(
      at::equal(model->prepare(batch.slice(2, 2), words, 6, 2).words, whole.narrow(0, 2, 2)));
  EXPECT_FALSE(at::equal(model->prepare(batch, words, 7, 0).words, whole));
  EXPECT_EQ(std::get<0>(at::_unique(whole)).numel(), 4);
  EXPECT_TRUE(model->draws_by_position());
  const auto without = make_model(adapted(0));
  EXPECT_FALSE(without->prepare(batch, words, 6, 0).words.defined());
  EXPECT_FALSE(without->draws_by_position());
}

// Losses of an evaluation are those without dropout; those of a step are not.
TEST(LoraDropout, IsForTrainingAlone) {
  for (const char* name : {"llama3-tiny", "dit-tiny"}) {
    const std::shared_ptr<Model> dropping = make_model(adapted(0.4, name)),
                                 plain = make_model(adapted(0, name));
    // Adapters, and a DiT's outputs, start at zero.
    for (const auto& model : {dropping, plain})
      for (const auto& parameter : model->parameters())
        parameter->value.add_(at::sin(at::arange(parameter->value.numel(), at::kDouble))
                                  .mul_(0.05)
                                  .view(parameter->value.sizes()));
    const Batch batch = data::SyntheticData(plain->options(), 3, 6).next();
    const auto losses = [&](Model& model) {
      const at::NoGradGuard no_grad;
      return model.losses(batch);
    };
    EXPECT_TRUE(at::equal(losses(*dropping), losses(*plain))) << name;
    const auto step = [&](const std::shared_ptr<Model>& model) {
      optim::OptimizerOptions still;
      still.lr = 0;
      train::Trainer trainer({model, {}, still, nullptr});
      return trainer.step(batch).loss;
    };
    EXPECT_GT(std::abs(step(dropping) - step(plain)), 1e-9) << name;
    EXPECT_TRUE(at::equal(losses(*dropping), losses(*plain))) << "after a step";
  }
}

}  // namespace
}  // namespace moonshard::models
