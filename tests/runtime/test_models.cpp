#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/data/synthetic.h"
#include "runtime/models/registry.h"
#include "tests/support/plain_models.h"

namespace moonshard {
namespace {

using ::testing::HasSubstr;

models::ModelOptions options_of(const std::string& model, const std::string& task,
                                const std::string& dtype) {
  models::ModelOptions options;
  options.model = model;
  options.task = task;
  options.dtype = dtype;
  options.device = "cpu";
  options.seed = 5;
  return options;
}

double relative_difference(const at::Tensor& got, const at::Tensor& want) {
  return ((got - want).norm() / want.norm()).item<double>();
}

class ModelParity : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(ModelParity, LossesEqualTheTextbookFormulas) {
  const auto [name, task] = GetParam();
  for (const auto& [dtype, tolerance] :
       std::vector<std::pair<std::string, double>>{{"float64", 1e-12}, {"float32", 1e-5}}) {
    const auto model = models::make_model(options_of(name, task, dtype));
    Batch batch = data::SyntheticData(model->options(), 3, 11).next();
    if (batch.attention_mask.defined() && model->options().task == "classify") {
      batch.attention_mask[1].slice(0, 6).fill_(false);  // padding on the right
      batch.attention_mask[2].slice(0, 1).fill_(false);
    }
    const at::NoGradGuard no_grad;
    const at::Tensor want = plain_losses(model->options(), leaves_of(*model), batch).detach();
    EXPECT_LT(relative_difference(model->losses(batch).to(want.scalar_type()), want), tolerance)
        << dtype;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ModelParity,
                         ::testing::Values(std::tuple("linear-tiny", "regress"),
                                           std::tuple("llama3-tiny", "classify"),
                                           std::tuple("llama3-tiny", "lm")));

TEST(Models, PaddingDoesNotChangeTheScore) {
  const auto model = models::make_model(options_of("llama3-tiny", "classify", "float64"));
  Batch batch = data::SyntheticData(model->options(), 2, 8).next();
  batch.attention_mask.slice(1, 5).fill_(false);
  const at::NoGradGuard no_grad;
  const at::Tensor before = model->forward(batch);
  batch.input_ids.slice(1, 5).fill_(7);
  EXPECT_TRUE(at::equal(model->forward(batch), before));
}

TEST(Models, TheSameSeedGivesTheSameWeights) {
  const auto a = models::make_model(options_of("llama3-tiny", "lm", "float32"));
  const auto b = models::make_model(options_of("llama3-tiny", "lm", "float32"));
  auto other = options_of("llama3-tiny", "lm", "float32");
  other.seed = 6;
  const auto c = models::make_model(other);
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  EXPECT_TRUE(at::equal(a->parameter(name).value, b->parameter(name).value));
  EXPECT_FALSE(at::equal(a->parameter(name).value, c->parameter(name).value));
  EXPECT_NEAR(a->parameter(name).value.std().item<double>(), 0.02, 0.001);
}

TEST(Models, AMetaModelHasShapesAndNoMemory) {
  auto options = options_of("linear", "regress", "float32");
  options.device = "meta";
  const auto model = models::make_model(options);
  // 8 x Linear(16384, 16384) with bias, float32: 8 GiB and half a MiB.
  EXPECT_EQ(model->parameter_bytes(), (int64_t{8} << 30) + (int64_t{1} << 19));
}

TEST(Models, MistakesNameWhatIsExpected) {
  const auto error_of = [](const std::function<void(models::ModelOptions&)>& change) {
    auto options = options_of("llama3-tiny", "classify", "float32");
    change(options);
    try {
      models::make_model(options);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of([](auto& o) { o.model = "lama3-tiny"; }),
              HasSubstr("did you mean 'llama3-tiny'?"));
  EXPECT_THAT(
      error_of([](auto& o) { o.num_heads = 3; }),
      HasSubstr("expected hidden_dim = num_heads x an even head size, got 128 and 3 heads"));
  EXPECT_THAT(error_of([](auto& o) { o.num_kv_heads = 3; }),
              HasSubstr("expected num_heads to be a multiple of num_kv_heads"));
  EXPECT_THAT(error_of([](auto& o) { o.task = "regress"; }),
              HasSubstr("expected task classify or lm, got 'regress'"));
}

TEST(Models, IdsOutOfRangeAreAClearError) {
  const auto model = models::make_model(options_of("llama3-tiny", "lm", "float32"));
  Batch batch = data::SyntheticData(model->options(), 1, 4).next();
  batch.input_ids[0][2] = 5000;
  try {
    model->losses(batch);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer 'model.embed_tokens': expected ids from 0 to 1023"));
  }
}

}  // namespace
}  // namespace moonshard
