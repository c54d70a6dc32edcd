// A classifier's last block for the scored token alone, against the same block for all tokens:
// losses, norms and clipped gradients. Against textbook formulas: test_models.cpp,
// privacy/test_engines.cpp, which run the default.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/data/source.h"
#include "runtime/models/model_cost.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"
#include "tests/support/plain_models.h"
#include "tests/support/tensors.h"
#include "tests/support/text_of_error.h"

namespace moonshard {
namespace {

models::ModelOptions classifier(const char* model, const char* last_block) {
  models::ModelOptions options;
  options.model = model;
  options.task = "classify";
  options.dtype = "float64";
  options.device = "cpu";
  options.seed = 5;
  options.num_layers = 3;
  options.last_block = last_block;
  return options;
}

struct OneStep {
  at::Tensor losses;
  std::vector<double> norms;
  std::map<std::string, at::Tensor> moved;
};

OneStep train_one_step(const models::ModelOptions& options, const char* mode) {
  const std::shared_ptr<models::Model> model = models::make_model(options);
  at::manual_seed(3);
  for (const auto& parameter : model->parameters())
    if (parameter->trainable) parameter->value.add_(at::randn_like(parameter->value), 0.05);
  Batch batch = data::SyntheticData(model->options(), 4, 11).next();
  batch.attention_mask[1].slice(0, 6).fill_(false);  // padding on the right
  batch.attention_mask[2].slice(0, 1).fill_(false);
  privacy::ClipOptions clip;
  clip.mode = mode;
  clip.noise_multiplier = 0;
  clip.max_grad_norm = 0.5;
  optim::OptimizerOptions sgd;
  sgd.lr = 1;
  OneStep outcome;
  {
    const at::NoGradGuard no_grad;
    outcome.losses = model->losses(batch);
  }
  train::Trainer trainer({model, clip, sgd, nullptr});
  outcome.moved = step_gradients(*model, [&] { outcome.norms = trainer.step(batch).norms; });
  return outcome;
}

using Way = std::tuple<const char*, const char*, const char*>;

class LastBlock : public ::testing::TestWithParam<Way> {};

TEST_P(LastBlock, GivesTheNumbersOfAllTokens) {
  const auto [name, mode, frozen] = GetParam();
  models::ModelOptions scored = classifier(name, "scored"), all = classifier(name, "all");
  scored.frozen = all.frozen = frozen;
  // A local layer, whose window ends between the scored token and the first.
  if (scored.model == "gemma3-tiny") scored.attention_window = all.attention_window = 3;
  const OneStep got = train_one_step(scored, mode), want = train_one_step(all, mode);
  EXPECT_LT(relative_difference(got.losses, want.losses), 1e-13);
  ASSERT_EQ(got.norms.size(), want.norms.size());
  for (size_t b = 0; b < want.norms.size(); ++b)
    EXPECT_NEAR(got.norms[b], want.norms[b], 1e-12 * want.norms[b]) << b;
  EXPECT_LT(relative_difference(got.moved, want.moved), 1e-11);
}

INSTANTIATE_TEST_SUITE_P(
    All, LastBlock,
    ::testing::Values(Way{"llama3-tiny", "none", ""}, Way{"llama3-tiny", "materialize", ""},
                      Way{"llama3.1-tiny", "bookkeeping", ""}, Way{"llama3-tiny", "ghost", ""},
                      Way{"llama3-tiny", "flash", ""}, Way{"llama3-tiny", "flash_bookkeeping", ""},
                      Way{"llama3-tiny", "auto", "*.layers.0.*"},
                      Way{"llama3-tiny", "bookkeeping", "*.layers.2.*,*embed*"},
                      Way{"llama3.2-tiny", "auto", ""}, Way{"qwen2.5-tiny", "auto", ""},
                      Way{"gemma2-tiny", "auto", ""}, Way{"gemma3-tiny", "auto", ""},
                      Way{"vaultgemma-tiny", "bookkeeping", ""}),
    [](const auto& test) {
      std::string name = fmt::format("{}_{}_{}", std::get<0>(test.param), std::get<1>(test.param),
                                     std::get<2>(test.param));
      std::replace_if(
          name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
      return name;
    });

TEST(LastBlockOption, IsScoredForClassifiersAndAllForLanguageModels) {
  const auto resolved = [](const char* task, const char* last_block) {
    models::ModelOptions options = classifier("llama3-tiny", last_block);
    options.task = task;
    return models::make_model(options)->options().last_block;
  };
  EXPECT_EQ(resolved("classify", "auto"), "scored");
  EXPECT_EQ(resolved("classify", "all"), "all");
  EXPECT_EQ(resolved("lm", "auto"), "all");
  EXPECT_THAT(text_of_error([&] { resolved("lm", "scored"); }),
              ::testing::HasSubstr("expected task classify beside last_block = scored, got lm"));
}

// Keys and values of T tokens, the rest of one: of Llama-8B at 1,024 tokens all but 4 % of a block.
TEST(LastBlockOption, LeavesOutWhatNoScoreNeeds) {
  const auto flops = [](const char* last_block) {
    models::ModelOptions options = classifier("llama3.1-8b", last_block);
    options.dtype = "bfloat16";
    options.num_layers = 32;
    return models::model_cost(options, 2, 1024).flops_per_token;
  };
  const double D = 4096, I = 14336, Q = 4096, K = 1024, T = 1024;
  const double block = 6 * (2 * D * Q + 2 * D * K + 3 * D * I) + 12 * (T / 2) * Q;
  const double last = 6 * 2 * D * K + 6 * (2 * D * Q + 3 * D * I) / T + 12 * Q;
  EXPECT_NEAR((flops("all") - flops("scored")) / (block - last), 1, 1e-12);
}

}  // namespace
}  // namespace moonshard
