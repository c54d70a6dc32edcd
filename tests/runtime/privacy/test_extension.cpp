// A kind of layer and an engine of somebody else's: refused by name without a rule, right with one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/models/blocks/losses.h"
#include "runtime/models/blocks/param_ops.h"
#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/layer_rules.h"
#include "runtime/train/trainer.h"

namespace moonshard {
namespace {

// y = x * weight, channel by channel: a layer that the runtime has never heard of.
struct GainFunction : torch::autograd::Function<GainFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor&, models::ParamLayer* layer) {
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    context->save_for_backward({x});
    return x * layer->weight->value;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto& layer = *reinterpret_cast<models::ParamLayer*>(context->saved_data["layer"].toInt());
    models::hand_over(layer, context->get_saved_variables()[0], gradients[0]);
    return {gradients[0] * layer.weight->value, at::Tensor(), at::Tensor()};
  }
};

class GainModel : public models::Model {
 public:
  GainModel() : Model(gain_options()) {
    first_ = &add_linear("first", 6, 6, true, 0.4);
    gain_ = &add_layer("gain", "gain", add_parameter("gain.weight", {6}, 0.1, 1));
  }
  at::Tensor forward(const Batch& batch) override {
    return GainFunction::apply(models::linear(batch.inputs, *first_), seam().anchor, gain_);
  }
  at::Tensor losses(const Batch& batch) override {
    return models::regression_losses(forward(batch), batch.targets);
  }

 private:
  static models::ModelOptions gain_options() {
    models::ModelOptions o;
    o.model = "gain";
    o.task = "regress";
    o.dtype = "float64";
    o.device = "cpu";
    o.hidden_dim = 6;
    return o;
  }
  models::ParamLayer *first_, *gain_;
};

class GainRule : public privacy::LayerRule {
 public:
  at::Tensor per_sample(const models::ParamLayer&, const at::Tensor& a,
                        const at::Tensor& g) const override {
    return a * g;
  }
};

struct WithoutRule {
  ~WithoutRule() { privacy::register_rule("gain", nullptr); }
};

privacy::ClipOptions clip(const std::string& mode) {
  privacy::ClipOptions options;
  options.mode = mode;
  options.noise_multiplier = 0;
  options.max_grad_norm = 0.5;
  return options;
}

TEST(Extension, ALayerWithoutARuleIsNamedWithWhatCanBeDone) {
  const auto model = std::make_shared<GainModel>();
  const Batch batch = data::SyntheticData(model->options(), 3, 1).next();
  try {
    train::Trainer({model, clip("ghost"), {}, nullptr}).step(batch);
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("layer 'gain' has no norm rule (kind gain)"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("freeze the layer"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("ms.register_rule"));
  }
  model->freeze("gain.weight");
  EXPECT_NO_THROW(train::Trainer({model, clip("ghost"), {}, nullptr}).step(batch));
}

TEST(Extension, ARegisteredRuleServesEveryEngine) {
  const WithoutRule after;
  privacy::register_rule("gain", std::make_shared<GainRule>());
  std::vector<double> want;
  for (const std::string& mode : privacy::engine_names()) {
    if (mode == "none") continue;
    const auto model = std::make_shared<GainModel>();
    const Batch batch = data::SyntheticData(model->options(), 4, 1).next();
    // By hand: y = x W^T + b, loss = mean (y w - t)^2.
    const at::Tensor y = at::matmul(batch.inputs, model->parameter("first.weight").value.t()) +
                         model->parameter("first.bias").value;
    const at::Tensor& w = model->parameter("gain.weight").value;
    const at::Tensor r = 2 * (y * w - batch.targets) / 6;
    const at::Tensor squares = (r * y).square().sum(1) + (r * w).square().sum(1) +
                               (r * w).square().sum(1) * batch.inputs.square().sum(1);
    const auto report = train::Trainer({model, clip(mode), {}, nullptr}).step(batch);
    for (int64_t b = 0; b < 4; ++b)
      EXPECT_NEAR(report.norms[static_cast<size_t>(b)], squares[b].sqrt().item<double>(), 1e-12)
          << mode;
  }
}

TEST(Extension, ARuleThatGivesTheWrongShapeIsRefused) {
  class Wrong : public privacy::LayerRule {
    at::Tensor per_sample(const models::ParamLayer&, const at::Tensor& a,
                          const at::Tensor& g) const override {
      return (a * g).sum(0);
    }
  };
  const WithoutRule after;
  privacy::register_rule("gain", std::make_shared<Wrong>());
  const auto model = std::make_shared<GainModel>();
  const Batch batch = data::SyntheticData(model->options(), 4, 1).next();
  EXPECT_THROW(train::Trainer({model, clip("materialize"), {}, nullptr}).step(batch), UsageError);
}

TEST(Extension, ARegisteredEngineTrainsLikeTheBuiltInOnes) {
  privacy::register_engine(
      {.name = "by_hand", .doc = "norms from a function"},
      [](const privacy::ClipOptions&, std::shared_ptr<privacy::Clipping> clipping) {
        return privacy::make_custom_engine(
            "by_hand",
            [](const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
              return privacy::squared_norms(layer, a, g, {privacy::NormMethod::Materialize});
            },
            privacy::Keep::Nothing, std::move(clipping));
      });
  const WithoutRule after;
  privacy::register_rule("gain", std::make_shared<GainRule>());
  const auto one = std::make_shared<GainModel>(), two = std::make_shared<GainModel>();
  const Batch batch = data::SyntheticData(one->options(), 4, 1).next();
  optim::OptimizerOptions sgd;
  sgd.lr = 0.1;
  train::Trainer({one, clip("by_hand"), sgd, nullptr}).step(batch);
  train::Trainer({two, clip("materialize"), sgd, nullptr}).step(batch);
  for (size_t i = 0; i < one->parameters().size(); ++i) {
    EXPECT_LT(
        (one->parameters()[i]->value - two->parameters()[i]->value).abs().max().item<double>(),
        1e-14);
  }
  privacy::unregister_engine("by_hand");
  EXPECT_THAT(privacy::engine_names(), ::testing::Not(::testing::Contains("by_hand")));
}

TEST(Extension, BuiltInEnginesKeepTheirNames) {
  EXPECT_THROW(privacy::unregister_engine("ghost"), UsageError);
  // An alias of flash.
  EXPECT_THROW(
      privacy::register_engine({.name = "flash_clip"},
                               [](const privacy::ClipOptions&, std::shared_ptr<privacy::Clipping>) {
                                 return privacy::make_plain_engine();
                               }),
      UsageError);
}

}  // namespace
}  // namespace moonshard
