// Our models against those of other libraries: the fixtures of tests/golden hold weights, a batch,
// and the outputs, per-sample losses and gradients that PyTorch and transformers gave in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"
#include "runtime/weights/load_model.h"
#include "runtime/weights/safetensors.h"
#include "tests/support/tensors.h"

namespace moonshard {
namespace {

using weights::SafetensorsFile;

std::filesystem::path folder_of(const std::string& name) {
  return std::filesystem::path(MOONSHARD_SOURCE_DIR) / "tests" / "golden" / name;
}

struct ParitySetting {
  const char* dtype;
  double tolerance;  ///< relative: rounding of the format, grown by the depth of the model
  const char* attention;
  const char* checkpointing;
  int64_t checkpoint_every;
};

constexpr ParitySetting kSettings[] = {
    {"float64", 1e-10, "flash", "none", 1},    {"float64", 1e-10, "standard", "none", 1},
    {"float64", 1e-10, "flash", "block", 1},   {"float64", 1e-10, "standard", "block", 2},
    {"float32", 1e-5, "flash", "none", 1},     {"float32", 1e-5, "standard", "none", 1},
    {"float32", 1e-5, "standard", "block", 1}, {"float32", 1e-5, "flash", "block", 2},
};

std::string text_of(const ParitySetting& s) {
  return fmt::format("{} {} checkpointing={} every {}", s.dtype, s.attention, s.checkpointing,
                     s.checkpoint_every);
}

models::ModelOptions options_of(const std::string& name, const ParitySetting& setting) {
  models::ModelOptions options = weights::options_from_config(folder_of(name));
  if (options.model == "dit") options.label_dropout = 0;  // the fixture's labels are final
  options.dtype = setting.dtype;
  options.attention = setting.attention;
  options.checkpointing = setting.checkpointing;
  options.checkpoint_every = setting.checkpoint_every;
  options.device = "cpu";
  return options;
}

// The batch in the fixture's own formats: ids as int64, the rest as float64.
Batch batch_of(const SafetensorsFile& reference) {
  Batch batch;
  const auto read = [&](const char* name) {
    return reference.find(name) != nullptr ? reference.read(name) : at::Tensor();
  };
  batch.input_ids = read("input_ids");
  batch.attention_mask = read("attention_mask");
  batch.labels = read("labels");
  batch.inputs = read("inputs");
  batch.targets = read("targets");
  batch.timesteps = read("timesteps");
  return batch;
}

// One step of engine "none": the gradient of the sum of the losses, by name.
std::map<std::string, at::Tensor> summed_gradients(std::shared_ptr<models::Model> model,
                                                   const Batch& batch) {
  std::map<std::string, at::Tensor> gradients;
  train::Trainer trainer({std::move(model), {}, {}, nullptr});
  trainer.observe_gradients([&](const models::Model& stepped) {
    for (const auto& parameter : stepped.parameters()) {
      if (parameter->grad.defined())
        gradients[parameter->name] = parameter->grad * static_cast<double>(batch.size());
    }
  });
  trainer.step(batch);
  return gradients;
}

class Parity : public ::testing::TestWithParam<const char*> {};

TEST_P(Parity, OutputsLossesAndGradientsEqualTheReference) {
  const std::string name = GetParam();
  const auto reference = SafetensorsFile::open(folder_of(name) / "reference.safetensors");
  const Batch batch = batch_of(reference);
  for (const ParitySetting& setting : kSettings) {
    SCOPED_TRACE(text_of(setting));
    const std::shared_ptr<models::Model> model = models::make_model(options_of(name, setting));
    const weights::LoadReport report = weights::load_weights(*model, folder_of(name));
    EXPECT_EQ(report.loaded.size(), model->parameters().size());
    EXPECT_THAT(report.unused, ::testing::IsEmpty());

    at::Tensor got, want = reference.read("logits");
    {
      const at::NoGradGuard no_grad;
      got = model->forward(batch);
      EXPECT_LT(relative_difference(model->losses(batch), reference.read("losses")),
                setting.tolerance);
    }
    ASSERT_EQ(got.sizes(), want.sizes());
    if (want.dim() == 3) {  // of a language model: what stands at padding means nothing
      got = got.index({batch.attention_mask});
      want = want.index({batch.attention_mask});
    }
    EXPECT_LT(relative_difference(got, want), setting.tolerance);

    const auto gradients = summed_gradients(model, batch);
    for (const auto& parameter : model->parameters()) {
      ASSERT_TRUE(gradients.contains(parameter->name)) << parameter->name;
      EXPECT_LT(relative_difference(gradients.at(parameter->name),
                                    reference.read("grad." + parameter->name)),
                setting.tolerance)
          << parameter->name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Parity,
                         ::testing::Values("llama31_classify", "llama32_lm_tied", "qwen15_lm",
                                           "qwen25_lm_tied", "gemma2_lm", "gemma2_classify",
                                           "gemma3_lm", "vaultgemma_lm", "dit_latent", "dit_pixel"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace moonshard
