// What engines hold, measured by the allocator hook and stated as growth: T positions, B samples, P
// parameters.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "runtime/models/registry.h"
#include "runtime/privacy/layer_rules.h"
#include "runtime/profile/memory.h"
#include "runtime/train/trainer.h"

namespace moonshard {
namespace {

class EngineMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { profile::install_cpu_memory_hook(); }
};

// Bytes that one layer's norm needs beyond its inputs; `size`: of its gradients' numbers.
double norm_temporaries(privacy::NormMethod method, int64_t B, int64_t T, int64_t width,
                        double size = 1) {
  models::Parameter weight;
  weight.value = at::zeros({width, width});
  models::ParamLayer layer;
  layer.name = "l";
  layer.weight = &weight;
  const at::Tensor a = at::randn({B, T, width}), g = at::randn({B, T, width}) * size;
  const int64_t before = profile::read_memory(at::kCPU).allocated_bytes;
  profile::reset_peak_memory(at::kCPU);
  privacy::squared_norms(layer, a, g, {method, 256});
  return static_cast<double>(profile::read_memory(at::kCPU).max_allocated_bytes - before);
}

TEST_F(EngineMemory, GhostTemporariesGrowWithTheSquareOfThePositions) {
  using privacy::NormMethod;
  const double small = norm_temporaries(NormMethod::Ghost, 1, 256, 64);
  EXPECT_NEAR(norm_temporaries(NormMethod::Ghost, 1, 512, 64) / small, 4, 0.4);
  EXPECT_NEAR(norm_temporaries(NormMethod::Ghost, 1, 1024, 64) / small, 16, 1.6);
  EXPECT_GT(small, 2 * 256 * 256 * 4) << "two matrices of T x T";
}

TEST_F(EngineMemory, FlashTemporariesGrowNeitherWithPositionsNorWithSamplesTimesParameters) {
  for (const auto method : {privacy::NormMethod::Width, privacy::NormMethod::InputLength}) {
    const double small = norm_temporaries(method, 2, 1024, 256);
    EXPECT_LT(norm_temporaries(method, 2, 4096, 256) / small, 1.2) << "4 T";
    EXPECT_LT(norm_temporaries(method, 8, 1024, 256) / small, 1.2) << "4 B";
    EXPECT_LT(norm_temporaries(method, 2, 1024, 1024) / small, 4.4) << "16 P";
    EXPECT_LT(norm_temporaries(method, 8, 1024, 1024), 8 * 1024 * 1024 * 4 / 8)
        << "an eighth of B P";
  }
}

// Gradients behind a layer of zeros are zeros, or too small for squares in float32: a row is read
// again in double, but no copy of all rows is made.
TEST_F(EngineMemory, NormsThatAreFormedInDoubleNeedNoWideCopy) {
  const double rows = 16 * 512 * 512 * 4;
  for (const double size : {1.0, 0.0, 1e-25})
    EXPECT_LT(norm_temporaries(privacy::NormMethod::Materialize, 16, 8, 512, size), 1.4 * rows)
        << size;
  const double operands = 2 * 4096 * 512 * 4;
  EXPECT_LT(norm_temporaries(privacy::NormMethod::Ghost, 4096, 1, 512), 0.6 * operands)
      << "one position";
}

struct Held {
  double kept, parameters;
};

Held held(const char* mode, int64_t B, int64_t T, int64_t layers = 2) {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.task = "lm";
  options.device = "cpu";
  options.num_layers = layers;
  const std::shared_ptr<models::Model> model = models::make_model(options);
  privacy::ClipOptions clip;
  clip.mode = mode;
  train::Trainer trainer(
      {model, clip, {}, std::make_unique<data::SyntheticData>(model->options(), B, T)});
  return {static_cast<double>(trainer.step().kept_bytes),
          static_cast<double>(model->parameter_bytes())};
}

TEST_F(EngineMemory, MaterializeHoldsSamplesTimesParameters) {
  for (const int64_t B : {1, 3}) {
    const Held got = held("materialize", B, 16);
    EXPECT_EQ(got.kept, static_cast<double>(B) * got.parameters);
    EXPECT_EQ(held("materialize", B, 64).kept, got.kept) << "positions do not matter";
  }
}

TEST_F(EngineMemory, GhostAndFlashHoldNothingAcrossLayers) {
  EXPECT_EQ(held("ghost", 2, 32).kept, 0);
  EXPECT_EQ(held("flash", 2, 32).kept, 0);
}

TEST_F(EngineMemory, BookkeepingHoldsOutputGradientsInProportionToTheTokens) {
  for (const char* mode : {"bookkeeping", "flash_bookkeeping"}) {
    const double small = held(mode, 2, 32).kept;
    EXPECT_NEAR(held(mode, 4, 32).kept / small, 2, 0.02) << mode;
    EXPECT_NEAR(held(mode, 2, 64).kept / small, 2, 0.02) << mode;
  }
}

// Under a budget: the fastest plan that fits, then the smallest, then a second pass.
TEST_F(EngineMemory, AutoStaysWithinItsBudget) {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.task = "lm";
  options.device = "cpu";
  const std::shared_ptr<models::Model> model = models::make_model(options);
  privacy::ClipOptions clip;
  clip.mode = "auto";
  int64_t unlimited = 0;
  for (const int64_t budget_mb : {0, 8, 7, 1}) {
    clip.memory_budget_mb = budget_mb;
    train::Trainer trainer(
        {model, clip, {}, std::make_unique<data::SyntheticData>(model->options(), 4, 128)});
    const train::StepReport report = trainer.step();
    bool twice = false;
    for (const auto& [phase, ms] : report.phases) twice = twice || phase == "second_backward";
    if (budget_mb == 0) {
      unlimited = report.kept_bytes;
      EXPECT_GT(unlimited, 8 << 20) << "else the budgets below bind nothing";
      EXPECT_FALSE(twice);
    } else {
      EXPECT_LE(report.kept_bytes, budget_mb << 20);
    }
    EXPECT_EQ(twice, report.kept_bytes == 0);
    EXPECT_TRUE(twice || budget_mb != 1);
  }
}

// Predictions before the forward pass: an input that several layers read is kept once, and layers
// of one position (a modulation per block) keep next to nothing.
TEST_F(EngineMemory, AutoPredictsWhatIsKept) {
  for (const char* name : {"llama3-tiny", "dit-tiny"}) {
    models::ModelOptions options;
    options.model = name;
    options.device = "cpu";
    options.hidden_dim = 128;
    options.head_dim = 32;
    if (std::string(name) == "dit-tiny") options.image_size = 32;
    const std::shared_ptr<models::Model> model = models::make_model(options);
    const auto kept = [&](const char* mode, int64_t budget_mb) {
      privacy::ClipOptions clip;
      clip.mode = mode;
      clip.memory_budget_mb = budget_mb;
      train::Trainer trainer(
          {model, clip, {}, std::make_unique<data::SyntheticData>(model->options(), 16, 64)});
      return trainer.step().kept_bytes;
    };
    // Short samples: (a, g) are smaller than gradients, so that the smallest plan is bookkeeping's.
    const int64_t needed = kept("bookkeeping", 0);
    EXPECT_GT(needed, 4 << 20) << name << ": else MiB are too coarse";
    EXPECT_GT(kept("auto", needed * 5 / 4 / (1 << 20)), 0) << name << " needs " << needed;
  }
}

}  // namespace
}  // namespace moonshard
