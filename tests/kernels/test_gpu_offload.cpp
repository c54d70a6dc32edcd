// cpu_offload on a GPU beside the same training without: gradients leave with their noise while the
// backward pass goes on, and the host updates.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"
#include "tests/kernels/on_gpu.h"
#include "tests/support/shared_secret.h"

namespace moonshard::train {
namespace {

class OffloadGpu : public OnGpu {};

struct OffloadWay {
  std::string engine = "bookkeeping", optimizer = "sgd", compute = "bfloat16";
  std::string sharding = "zero3";
  int64_t grad_accum = 1;
  bool secret = true;
  std::string policies = {};    ///< of units that are offloaded, instead of all
  double clip_global_norm = 0;  ///< of engine none

  std::string text() const {
    return fmt::format("{} {} {} {} accum {} secret {} '{}' bound {}", engine, optimizer, compute,
                       sharding, grad_accum, secret, policies, clip_global_norm);
  }
};

struct OffloadTraining {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<Trainer> trainer;
};

OffloadTraining train_on_gpu(const OffloadWay& way, bool offload) {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.device = "cuda";
  options.task = "lm";
  options.hidden_dim = 256;
  options.intermediate_dim = 512;
  options.vocab_size = 1000;
  options.head_dim = 64;
  options.num_layers = 4;
  options.param_dtype = way.compute;
  options.deferred = true;
  sharding::ShardingOptions sharding;
  sharding.parallel = "fsdp";
  sharding.sharding = way.sharding;
  sharding.cpu_offload = offload && way.policies.empty();
  if (offload) sharding.unit_policies = way.policies;
  OffloadTraining run;
  run.model = models::make_model(options);
  privacy::ClipOptions clip;
  clip.mode = way.engine;
  clip.noise_multiplier = 0.5;
  optim::OptimizerOptions optimizer;
  optimizer.optimizer = way.optimizer;
  optimizer.lr = way.optimizer == "sgd" ? 0.01 : 1e-4;
  StepOptions step;
  step.grad_accum = way.grad_accum;
  step.clip_global_norm = way.clip_global_norm;
  // Adam's first steps go by the sign of a gradient: one that is nearly zero must be the same.
  step.deterministic = true;
  run.trainer = std::make_unique<Trainer>(TrainerParts{
      run.model, clip, optimizer,
      std::make_unique<data::SyntheticData>(run.model->options(), 4, 64), step, sharding, nullptr,
      privacy::reproducible_noise(), way.secret ? std::make_shared<SharedSecret>() : nullptr});
  return run;
}

// The host and the GPU draw initial weights that differ in their last bits, which bfloat16 may
// round apart: both begin with the same, and with numbers that it has exactly, so that no tie is
// rounded to even by a cast and away from zero by halves.
void begin_with_equal_weights(const OffloadTraining& one, const OffloadTraining& other) {
  one.trainer->gather();
  other.trainer->gather();
  for (const auto& parameter : one.model->parameters()) {
    parameter->value.copy_(parameter->value.to(at::kBFloat16));
    other.model->parameter(parameter->name).value.copy_(parameter->value);
  }
}

// Both have the same noise, drawn on the GPU but in later micro-batches; the host's and the GPU's
// sums differ in their last bits, which may round an element to the noise's next grid point: that
// is all after one step. Later a weight that bfloat16 rounds the other way changes gradients by
// some 1e-3, and Adam divides each by its size: those near zero move elsewhere.
void expect_the_same(const OffloadWay& way) {
  const OffloadTraining with = train_on_gpu(way, true), without = train_on_gpu(way, false);
  begin_with_equal_weights(with, without);
  std::vector<at::Tensor> begin;
  for (const auto& parameter : with.model->parameters())
    begin.push_back(parameter->value.cpu().to(at::kDouble));
  for (const double tolerance : {1e-2, way.optimizer == "sgd" ? 0.1 : 0.5}) {
    const StepReport a = with.trainer->step(), b = without.trainer->step();
    EXPECT_NEAR(a.loss, b.loss, 1e-3 * std::abs(b.loss)) << way.text();
    EXPECT_EQ(with.trainer->parallel().memory().gradients_now, 0) << way.text();
    with.trainer->gather();
    without.trainer->gather();
    size_t i = 0;
    for (const auto& parameter : with.model->parameters()) {
      const at::Tensor want = without.model->parameter(parameter->name).value.cpu().to(at::kDouble);
      const at::Tensor got = parameter->value.cpu().to(at::kDouble);
      const double moved = (want - begin[i++]).norm().item<double>();
      EXPECT_GT(moved, 0) << parameter->name;
      EXPECT_LT((got - want).norm().item<double>(), tolerance * moved)
          << way.text() << ": " << parameter->name;
    }
  }
}

TEST_F(OffloadGpu, TrainsAsWithout) {
  for (const char* engine : {"bookkeeping", "ghost", "none"}) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      for (const int64_t grad_accum : {1, 2}) {
        for (const bool secret : {true, false}) {
          OffloadWay way;
          way.engine = engine, way.optimizer = optimizer, way.grad_accum = grad_accum;
          way.secret = secret && way.engine != "none";
          expect_the_same(way);
        }
      }
    }
  }
}

TEST_F(OffloadGpu, AlsoOfSomeUnitsAndWithABoundOfTheGlobalNorm) {
  for (const char* policies :
       {"", "*.1, root: offload = yes", "*.0: offload = yes, reshard = no"}) {
    for (const char* engine : {"bookkeeping", "none"}) {
      for (const int64_t grad_accum : {1, 2}) {
        OffloadWay way;
        way.engine = engine, way.policies = policies, way.grad_accum = grad_accum;
        way.secret = way.engine != "none";
        expect_the_same(way);
      }
    }
    OffloadWay bounded;
    bounded.engine = "none", bounded.policies = policies, bounded.secret = false;
    bounded.clip_global_norm = 0.1;
    expect_the_same(bounded);
  }
}

TEST_F(OffloadGpu, AlsoInFloat32AndOtherStrategies) {
  for (const char* compute : {"float32", "bfloat16"}) {
    for (const char* sharding : {"zero2", "zero2_replicated", "zero3"}) {
      OffloadWay way;
      way.compute = compute, way.sharding = sharding;
      expect_the_same(way);
    }
  }
}

// Many steps in a row: buffers of units and steps are used again while copies are under way.
TEST_F(OffloadGpu, GoesOnForManySteps) {
  OffloadWay way;
  way.compute = "float32";
  const OffloadTraining with = train_on_gpu(way, true), without = train_on_gpu(way, false);
  for (int i = 0; i < 20; ++i) {
    const StepReport a = with.trainer->step(), b = without.trainer->step();
    ASSERT_NEAR(a.loss, b.loss, 2e-3 * std::abs(b.loss)) << "step " << i;
  }
}

}  // namespace
}  // namespace moonshard::train
