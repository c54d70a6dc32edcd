#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>

#include "runtime/data/source.h"
#include "runtime/models/blocks/positions.h"
#include "runtime/models/families/dit/dit.h"
#include "runtime/models/registry.h"
#include "tests/support/plain_models.h"
#include "tests/support/tensors.h"

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

INSTANTIATE_TEST_SUITE_P(
    All, ModelParity,
    ::testing::Values(std::tuple("linear-tiny", "regress"), std::tuple("llama3-tiny", "classify"),
                      std::tuple("llama3-tiny", "lm"), std::tuple("llama3.1-tiny", "classify"),
                      std::tuple("llama3.2-tiny", "lm"), std::tuple("qwen1.5-tiny", "lm"),
                      std::tuple("qwen2.5-tiny", "lm"), std::tuple("qwen2.5-tiny", "classify")));

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

int64_t parameters_of(const std::string& model, const std::string& task) {
  auto options = options_of(model, task, "bfloat16");
  options.device = "meta";
  return models::make_model(options)->num_parameters();
}

TEST(Presets, HaveThePublishedNumberOfParameters) {
  EXPECT_EQ(parameters_of("llama3.1-8b", "lm"), 8'030'261'248);
  EXPECT_EQ(parameters_of("llama3.2-1b", "lm"), 1'235'814'400);
  EXPECT_EQ(parameters_of("qwen1.5-1.8b", "lm"), 1'836'828'672);
  EXPECT_EQ(parameters_of("qwen2.5-1.5b", "lm"), 1'543'714'304);
  // A classifier has num_labels rows instead of a vocabulary.
  EXPECT_EQ(parameters_of("llama3.1-8b", "classify"),
            8'030'261'248 - int64_t{128256} * 4096 + 3 * 4096);
  // DiT-XL/2 as published counts its fixed position table (256 x 1152) and predicts a variance
  // besides the noise: 16 more outputs of the last layer.
  EXPECT_EQ(parameters_of("dit-xl/2", "denoise"), 675'129'632 - 256 * 1152 - 16 * (1152 + 1));
  // DiT-L: 18 D^2 + 15 D in a block, then patches, positions, timestep, labels and the last layer;
  // D = 1024 and 3 x 8 x 8 numbers in a patch.
  const int64_t D = 1024, P = 192;
  EXPECT_EQ(parameters_of("dit-l/8", "denoise"), 24 * (18 * D * D + 15 * D) + (P + 1) * D +
                                                     1024 * D + (257 + D + 1) * D + 1001 * D +
                                                     (D + 1) * P + 2 * D * D + 2 * D);
}

TEST(Presets, OfGemmaHaveAsManyParametersAsThePublishedFiles) {
  EXPECT_EQ(parameters_of("gemma-2-2b", "lm"), 2'614'341'888);
  EXPECT_EQ(parameters_of("gemma-2-9b", "lm"), 9'241'705'984);
  EXPECT_EQ(parameters_of("gemma-3-1b", "lm"), 999'885'952);
  // Its embedding has 64 rows more than the tokenizer has tokens.
  EXPECT_EQ(parameters_of("gemma-3-4b", "lm"), 3'880'099'328 + 64 * 2560);
}

TEST(Presets, AreFoundUnderTheirNamesOnTheHub) {
  const std::pair<const char*, const char*> names[] = {
      {"meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b"},
      {"meta-llama/Meta-Llama-3.1-8B", "llama3.1-8b"},
      {"meta-llama/Llama-3.2-1B", "llama3.2-1b"},
      {"Qwen/Qwen1.5-1.8B-Chat", "qwen1.5-1.8b"},
      {"Qwen/Qwen2.5-1.5B", "qwen2.5-1.5b"},
      {"Qwen2.5-1.5B-Instruct", "qwen2.5-1.5b"},
      {"google/gemma-3-1b-it", "gemma-3-1b"},
      {"google/gemma-2-2b", "gemma-2-2b"},
      {"google/vaultgemma-1b", "vaultgemma-1b"},
      {"facebook/DiT-XL-2-256", "dit-xl/2"},
      {"DiT-XL/2", "dit-xl/2"}};
  for (const auto& [name, preset] : names)
    EXPECT_EQ(models::find_preset(name).sizes.model, preset) << name;
  EXPECT_THROW(models::find_preset("meta-llama/Llama-3.1-70B"), UsageError);
  EXPECT_EQ(models::hub_name("llama3.1-8b"), "meta-llama/Llama-3.1-8B-Instruct");
  EXPECT_EQ(models::hub_name("llama3-tiny"), "llama3-tiny") << "the hub has no such model";
  for (const models::Preset& preset : models::presets())
    EXPECT_EQ(models::find_preset(models::hub_name(preset.sizes.model)).sizes.model,
              preset.sizes.model);
  const std::string said = models::hub_suggestion("meta-llama/Llama-3.1-70B-Instruct");
  EXPECT_NE(said.find("did you mean 'meta-llama/Llama-3.1-8B-Instruct'?"), std::string::npos)
      << said;
}

TEST(Presets, ResolveWithoutAnOpenChoice) {
  for (const models::Preset& preset : models::presets()) {
    models::ModelOptions options;
    options.model = preset.sizes.model;
    const models::ModelOptions o = models::resolve_model_options(options);
    const std::string& name = o.model;
    EXPECT_NE(o.task, "auto") << name;
    EXPECT_EQ(o.param_dtype, "float32") << name;
    EXPECT_EQ(models::tokens_per_sample(o, preset.seq_length), preset.seq_length) << name;
    if (preset.family->name() == "linear") continue;
    // Gemma's heads are as wide as they are, whatever the model's width.
    if (name.find("gemma") == std::string::npos) {
      EXPECT_EQ(o.head_dim * o.num_heads, o.hidden_dim) << name;
    }
    EXPECT_GT(o.norm_eps, 0) << name;
    if (preset.family->name() == "dit") {
      EXPECT_NE(o.positions, "auto") << name;
      EXPECT_NE(o.norm_affine, "auto") << name;
      EXPECT_EQ(o.label_dropout, 0.1) << name;
    } else {
      EXPECT_NE(o.tie_embeddings, "auto") << name;
      EXPECT_NE(o.qkv_bias, "auto") << name;
      EXPECT_NE(o.rope_scaling, "auto") << name;
      EXPECT_GT(o.rope_base, 0) << name;
      EXPECT_EQ(o.rope_original_length, o.rope_scaling == "llama3" ? 8192 : 0) << name;
    }
  }
}

TEST(Positions, LinearScalingStretchesEveryWave) {
  models::RotaryOptions plain, scaled;
  scaled.linear_scaling = true;
  scaled.factor = 8;
  EXPECT_TRUE(at::equal(models::rotary_frequencies(32, plain, at::kCPU) / 8,
                        models::rotary_frequencies(32, scaled, at::kCPU)));
}

TEST(Positions, Llama3ScalingKeepsShortWavesStretchesLongOnesAndBlendsBetween) {
  models::RotaryOptions plain, scaled;
  plain.base = scaled.base = 500000;
  scaled.llama3_scaling = true;
  scaled.factor = 8;
  scaled.original_length = 8192;
  const at::Tensor before = models::rotary_frequencies(128, plain, at::kCPU);
  const at::Tensor ratio = models::rotary_frequencies(128, scaled, at::kCPU) / before;
  int kept = 0, blended = 0, stretched = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const double wavelength = 2 * std::acos(-1.0) / before[i].item<double>();
    const double got = ratio[i].item<double>();
    if (wavelength < 8192.0 / 4) {
      EXPECT_DOUBLE_EQ(got, 1);
      ++kept;
    } else if (wavelength > 8192.0) {
      EXPECT_DOUBLE_EQ(got, 1.0 / 8);
      ++stretched;
    } else {
      const double share = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR(got, share + (1 - share) / 8, 1e-12);
      ++blended;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(blended, 3);
  EXPECT_GT(stretched, 20);
}

TEST(Dit, PredictsNothingBeforeItHasLearned) {
  for (const char* name : {"dit-tiny", "dit-xl-tiny"}) {
    const auto model = models::make_model(options_of(name, "auto", "float32"));
    const Batch batch = data::SyntheticData(model->options(), 2, 1).next();
    const at::NoGradGuard no_grad;
    const at::Tensor noise = model->forward(batch);
    EXPECT_EQ(noise.sizes(), batch.inputs.sizes());
    EXPECT_EQ(noise.abs().max().item<double>(), 0) << name;
  }
}

TEST(Dit, LabelsAreDroppedAtTheGivenRateAndTheSameWayAgain) {
  auto options = options_of("dit-tiny", "auto", "float32");
  options.label_dropout = 0.25;
  const auto model = models::make_model(options);
  const int64_t samples = 40000;
  Batch batch;
  batch.inputs = at::zeros({samples, 1});
  batch.labels = at::full({samples}, 4, at::kLong);
  const at::Tensor labels = model->prepare(batch, model->seed_words(), 3).labels;
  const at::Tensor dropped = labels.eq(10);
  EXPECT_TRUE(dropped.logical_or(labels.eq(4)).all().item<bool>());
  // Five standard deviations of a share of 40000 draws.
  EXPECT_NEAR(dropped.to(at::kDouble).mean().item<double>(), 0.25, 0.011);
  EXPECT_TRUE(at::equal(model->prepare(batch, model->seed_words(), 3).labels, labels));
  EXPECT_FALSE(at::equal(model->prepare(batch, model->seed_words(), 4).labels, labels));
  EXPECT_EQ(batch.labels.eq(4).sum().item<int64_t>(), samples);  // the caller's batch stays

  options.label_dropout = 0;
  EXPECT_TRUE(
      at::equal(models::make_model(options)->prepare(batch, RandomWords(uint64_t{0}), 3).labels,
                batch.labels));
}

TEST(Diffusion, NoisingKeepsTheVarianceAndTheNoiseIsTheTarget) {
  const at::Tensor& signal = models::remaining_signal();
  ASSERT_EQ(signal.numel(), 1000);
  EXPECT_DOUBLE_EQ(signal[0].item<double>(), 1 - 1e-4);
  EXPECT_NEAR(signal[1].item<double>(), (1 - 1e-4) * (1 - 1e-4 - 0.0199 / 999), 1e-15);
  EXPECT_LT(signal[999].item<double>(), 5e-5);  // nothing is left of the image

  const at::Generator generator = at::detail::createCPUGenerator(3);
  const at::Tensor images = at::randn({3, 4, 64, 64}, generator, at::kDouble);
  const at::Tensor noise = at::randn({3, 4, 64, 64}, generator, at::kDouble);
  const at::Tensor times = at::tensor({0, 300, 999}, at::kLong);
  const at::Tensor noisy = models::add_diffusion_noise(images, noise, times);
  for (int64_t b = 0; b < 3; ++b) {
    // The share of the image is its projection; 16384 numbers give it within 0.04 (5 deviations).
    EXPECT_NEAR(
        (noisy[b] * images[b]).mean().item<double>() / images[b].square().mean().item<double>(),
        signal[times[b].item<int64_t>()].sqrt().item<double>(), 0.04);
    EXPECT_NEAR(noisy[b].var().item<double>(), 1, 0.06);
  }

  const auto options = models::resolve_model_options(options_of("dit-xl-tiny", "auto", "float64"));
  const Batch batch = data::SyntheticData(options, 3, 1).next();
  const at::Tensor left = signal.index({batch.timesteps}).view({3, 1, 1, 1});
  const at::Tensor image = (batch.inputs - (1 - left).sqrt() * batch.targets) / left.sqrt();
  EXPECT_EQ(batch.inputs.sizes(), (at::IntArrayRef{3, 4, 16, 16}));
  // The other way round: what the targets leave is an image of unit variance, free of them.
  EXPECT_NEAR(image[0].var().item<double>(), 1, 0.25);
  EXPECT_NEAR((image * batch.targets).mean().item<double>(), 0, 0.1);
  EXPECT_TRUE(at::equal(data::SyntheticData(options, 3, 1).next().inputs, batch.inputs));
}

TEST(Models, FrozenParametersAreNamedByGlobs) {
  auto options = options_of("llama3-tiny", "lm", "float32");
  options.frozen = "model.embed_tokens.*, *.mlp.*";
  int64_t frozen = 0;
  const auto model = models::make_model(options);
  for (const auto& parameter : model->parameters()) frozen += !parameter->trainable;
  EXPECT_EQ(frozen, 1 + 2 * 3);
  EXPECT_FALSE(model->parameter("model.layers.1.mlp.up_proj.weight").trainable);
}

TEST(Models, MistakesNameWhatIsExpected) {
  const auto error_of = [](const std::function<void(models::ModelOptions&)>& change,
                           const char* name = "llama3-tiny") {
    auto options = options_of(name, "auto", "float32");
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
  EXPECT_THAT(error_of([](auto& o) { o.head_dim = 5; }), HasSubstr("expected an even head_dim"));
  EXPECT_THAT(error_of([](auto& o) { o.frozen = "*.bias"; }),
              HasSubstr("expected globs that match parameters, got '*.bias'"));
  EXPECT_THAT(error_of([](auto& o) {
                o.rope_scaling = "llama3";
                o.rope_low_freq_factor = 4;
              }),
              HasSubstr("expected rope_low_freq_factor below rope_high_freq_factor, got 4 and 4"));
  EXPECT_THAT(error_of([](auto& o) { o.hidden_dim = 64; }, "llama"),
              HasSubstr("model 'llama': expected sizes, got none for vocab_size, "
                        "intermediate_dim, num_layers, num_heads, num_kv_heads"));
  EXPECT_THAT(error_of([](auto& o) { o.patch_size = 5; }, "dit-tiny"),
              HasSubstr("expected image_size to be a multiple of patch_size, got 32 and 5"));
  EXPECT_THAT(error_of([](auto& o) { o.num_heads = 7; }, "dit-tiny"),
              HasSubstr("expected hidden_dim = num_heads x a head size, got 64 and 7 heads"));
  EXPECT_THAT(error_of([](auto& o) { o.hidden_dim = 6, o.num_heads = 2; }, "dit-xl-tiny"),
              HasSubstr("expected hidden_dim to be a multiple of 4 for positions = sincos, got 6"));
  EXPECT_THAT(error_of([](auto& o) { o.task = "lm"; }, "dit-tiny"),
              HasSubstr("expected task denoise, got 'lm'"));
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
