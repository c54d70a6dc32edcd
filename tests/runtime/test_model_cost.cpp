// Predicted costs against what a step really takes, and against arithmetic by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/models/model_cost.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"

namespace moonshard {
namespace {

struct Setting {
  const char* model;
  const char* task;
  int64_t tokens;
  const char* attention;
  const char* checkpointing;
};

class ModelCost : public ::testing::TestWithParam<Setting> {
 protected:
  models::ModelOptions options() const {
    models::ModelOptions o;
    o.model = GetParam().model;
    o.task = GetParam().task;
    o.attention = GetParam().attention;
    o.checkpointing = GetParam().checkpointing;
    o.device = "cpu";
    o = models::resolve_model_options(o);
    if (o.task == "denoise")
      o.image_size = o.patch_size * std::lround(std::sqrt(double(GetParam().tokens)));
    return o;
  }
};

TEST_P(ModelCost, PredictedPeakIsWithin15PercentOfAStep) {
  const c10::Device cpu(c10::kCPU);
  profile::install_cpu_memory_hook();
  const int64_t before = profile::read_memory(cpu).allocated_bytes;
  const std::shared_ptr<models::Model> model = models::make_model(options());
  train::Trainer trainer(model, {}, {}, nullptr);
  const Batch batch = data::SyntheticData(model->options(), 1, GetParam().tokens).next();
  profile::reset_peak_memory(cpu);
  trainer.step(batch);
  const double measured =
      static_cast<double>(profile::read_memory(cpu).max_allocated_bytes - before);
  const models::ModelCost cost = models::model_cost(options(), 1, GetParam().tokens);
  const double ratio = static_cast<double>(cost.peak_bytes) / measured;
  RecordProperty("predicted_over_measured", fmt::format("{:.3f}", ratio));
  EXPECT_NEAR(ratio, 1, 0.15) << "predicted " << cost.peak_bytes << ", measured " << measured;
}

INSTANTIATE_TEST_SUITE_P(
    All, ModelCost,
    ::testing::Values(Setting{"llama3-tiny", "classify", 1024, "flash", "none"},
                      Setting{"llama3-tiny", "lm", 1024, "flash", "none"},
                      Setting{"llama3-tiny", "classify", 1024, "standard", "none"},
                      Setting{"llama3-tiny", "classify", 1024, "flash", "block"},
                      Setting{"qwen2.5-tiny", "lm", 512, "flash", "none"},
                      Setting{"dit-tiny", "denoise", 1024, "flash", "none"},
                      Setting{"dit-tiny", "denoise", 1024, "standard", "none"},
                      Setting{"dit-xl-tiny", "denoise", 1024, "flash", "block"}),
    [](const auto& test) {
      std::string name = fmt::format("{}_{}_{}_{}", test.param.model, test.param.task,
                                     test.param.attention, test.param.checkpointing);
      std::replace_if(
          name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
      return name;
    });

TEST(ModelCostByHand, FlopsAreSixPerWeightAndAttentionOnTop) {
  models::ModelOptions o;
  o.model = "linear-tiny";
  EXPECT_DOUBLE_EQ(models::model_cost(o, 1, 1).flops_per_token, 6.0 * 4 * 256 * 256);
  // Llama 3.1 8B as a language model: all weights but the embedding's rows, norms left out.
  o.model = "llama3.1-8b";
  o.task = "lm";
  const double weights = 8'030'261'248.0 - 128256.0 * 4096 - 65.0 * 4096;
  EXPECT_DOUBLE_EQ(models::model_cost(o, 1, 1024).flops_per_token,
                   6 * weights + 6.0 * 32 * 4096 * 1024);
  // Attention of a DiT is not causal.
  o.model = "dit-xl/2";
  o.task = "auto";
  const models::ModelCost one = models::model_cost(o, 1, 1);
  o.image_size = 64;  // four times the tokens
  const double D = 1152, per_sample = (256 + D) * D + 28 * 6 * D * D + 2 * D * D;
  EXPECT_NEAR(models::model_cost(o, 1, 1).flops_per_token - one.flops_per_token,
              12 * 28 * D * (1024 - 256) - 6 * per_sample * (1.0 / 256 - 1.0 / 1024), 1);
}

TEST(ModelCostByHand, BytesFollowTheFormats) {
  models::ModelOptions o;
  o.model = "llama3.2-1b";
  o.task = "lm";
  const models::ModelCost wide = models::model_cost(o, 1, 512);
  o.dtype = "bfloat16";
  const models::ModelCost half = models::model_cost(o, 1, 512);
  EXPECT_EQ(wide.parameter_bytes, 4 * int64_t{1'235'814'400});
  EXPECT_EQ(half.parameter_bytes, 2 * int64_t{1'235'814'400});
  EXPECT_EQ(half.gradient_bytes, wide.gradient_bytes);  // sums stay in float32
  EXPECT_LT(half.activation_bytes, wide.activation_bytes);
  o.frozen = "model.*";  // the embedding is the head as well: nothing is left to train
  EXPECT_EQ(models::model_cost(o, 1, 512).gradient_bytes, 0);
}

}  // namespace
}  // namespace moonshard
