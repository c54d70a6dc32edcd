// Sums that are left to the update (Parameter::product): the same training as with sums that are
// formed. On the CPU references stand in for the kernels (joined_by_references.h).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/models/registry.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/train/trainer.h"
#include "tests/support/shared_secret.h"

namespace moonshard::train {
namespace {

struct ProductWay {
  std::string engine = "bookkeeping", optimizer = "sgd", parallel = "fsdp", tied = "no";
  std::string clipping = "flat", world = "auto";
  int64_t grad_accum = 1;

  std::string text() const {
    return fmt::format("{} {} {} tied {} {} {} accum {}", engine, optimizer, parallel, tied,
                       clipping, world, grad_accum);
  }
};

// Notes which weights reach the update as products.
class SeesProducts : public SharedSecret {
 public:
  void before_reduction(const models::ParamLayer& layer) override {
    if (layer.weight->product.defined()) names.insert(layer.weight->name);
  }
  std::set<std::string> names;
};

struct ProductRun {
  std::shared_ptr<models::Model> model;
  std::shared_ptr<SeesProducts> seen = std::make_shared<SeesProducts>();
  std::unique_ptr<Trainer> trainer;
};

ProductRun make_product_run(const ProductWay& way) {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.device = "cpu";
  options.task = "lm";
  options.hidden_dim = 24;
  options.intermediate_dim = 40;
  options.vocab_size = 32;
  options.head_dim = 8;
  options.num_layers = 2;
  options.tie_embeddings = way.tied;
  options.deferred = way.parallel == "fsdp";
  sharding::ShardingOptions sharding;
  sharding.parallel = way.parallel;
  sharding.world = way.world;
  sharding.link = "instant";
  privacy::ClipOptions clip;
  clip.mode = way.engine;
  clip.clipping = way.clipping;
  clip.noise_multiplier = 0.01;
  optim::OptimizerOptions optimizer;
  optimizer.optimizer = way.optimizer;
  optimizer.lr = 0.01;
  StepOptions step;
  step.grad_accum = way.grad_accum;
  ProductRun run;
  run.model = models::make_model(options);
  run.trainer = std::make_unique<Trainer>(
      TrainerParts{run.model, clip, optimizer,
                   std::make_unique<data::SyntheticData>(run.model->options(), 4, 16), step,
                   sharding, nullptr, privacy::reproducible_noise(), run.seen});
  return run;
}

std::vector<at::Tensor> weights_after_two_steps(const ProductRun& run) {
  for (int i = 0; i < 2; ++i) run.trainer->step();
  run.trainer->gather();
  std::vector<at::Tensor> values;
  for (const auto& parameter : run.model->parameters())
    values.push_back(parameter->value.to(at::kDouble));
  return values;
}

std::set<std::string> expect_the_same(const ProductWay& way) {
  const ProductRun formed = make_product_run(way), start = make_product_run(way);
  const auto want = weights_after_two_steps(formed);
  EXPECT_TRUE(formed.seen->names.empty()) << way.text();
  start.trainer->gather();
  const privacy::JoinedByReferences joined;
  const ProductRun left = make_product_run(way);
  const auto got = weights_after_two_steps(left);
  for (size_t i = 0; i < want.size(); ++i) {
    const models::Parameter& parameter = *start.model->parameters()[i];
    const double moved = (want[i] - parameter.value.to(at::kDouble)).norm().item<double>();
    // References round elsewhere, and noise is on a grid; Adam's first steps go by signs.
    const double share = way.optimizer == "sgd" ? 1e-2 : 5e-2;
    EXPECT_LT((got[i] - want[i]).norm().item<double>(), share * moved)
        << way.text() << ": " << parameter.name;
  }
  return left.seen->names;
}

TEST(Products, TrainAsSumsThatAreFormed) {
  for (const char* engine : {"bookkeeping", "flash", "ghost"}) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      for (const int64_t accum : {1, 2}) {
        for (const char* parallel : {"none", "fsdp"}) {
          ProductWay way;
          way.engine = engine, way.optimizer = optimizer, way.grad_accum = accum;
          way.parallel = parallel;
          const auto seen = expect_the_same(way);
          EXPECT_TRUE(seen.contains("model.layers.1.mlp.down_proj.weight")) << way.text();
          EXPECT_TRUE(seen.contains("lm_head.weight")) << way.text();
        }
      }
    }
  }
}

TEST(Products, OfATiedHeadJoinTheEmbeddingsSum) {
  ProductWay way;
  way.tied = "yes";
  for (const char* engine : {"bookkeeping", "flash"}) {
    way.engine = engine;
    EXPECT_TRUE(expect_the_same(way).contains("model.embed_tokens.weight"));
  }
}

TEST(Products, HaveTheFactorsOfTheirLayer) {
  ProductWay way;
  way.clipping = "per_layer";
  EXPECT_FALSE(expect_the_same(way).empty());
}

// Other ranks' sums, or somebody who looks: the sum is formed.
TEST(Products, AreNotLeftWhereTheSumIsNeeded) {
  ProductWay way;
  way.world = "fake:2";
  EXPECT_TRUE(expect_the_same(way).empty());
  const privacy::JoinedByReferences joined;
  const ProductRun run = make_product_run({});
  size_t looked = 0;
  run.trainer->observe_gradients([&](const models::Model& model) {
    for (const auto& parameter : model.parameters()) looked += parameter->grad.defined() ? 1 : 0;
  });
  run.trainer->step();
  EXPECT_EQ(looked, run.model->parameters().size());
  EXPECT_TRUE(run.seen->names.empty());
}

}  // namespace
}  // namespace moonshard::train
