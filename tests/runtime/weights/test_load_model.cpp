#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/models/registry.h"
#include "runtime/weights/load_model.h"
#include "runtime/weights/safetensors.h"
#include "runtime/weights/weight_source.h"
#include "tests/runtime/weights/raw_safetensors.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::weights {
namespace {

using models::Model;
using models::ModelOptions;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelOptions options_of(const char* model, const char* task = "auto") {
  ModelOptions options;
  options.model = model;
  options.task = task;
  options.device = "cpu";
  options.seed = 11;
  return options;
}

// The same model with other random numbers, so that a parameter that was not loaded is seen.
std::unique_ptr<Model> other_start(ModelOptions options) {
  options.seed = 99;
  return models::make_model(options);
}

NamedTensors tensors_of(const Model& model) {
  NamedTensors tensors;
  for (const auto& parameter : model.parameters())
    tensors.emplace_back(parameter->name, parameter->value);
  return tensors;
}

void remove_tensor(NamedTensors& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const auto& named) { return named.first == name; });
}

at::Tensor& tensor_of(NamedTensors& tensors, const std::string& name) {
  for (auto& [key, tensor] : tensors) {
    if (key == name) return tensor;
  }
  throw std::out_of_range(name);
}

void expect_equal(const Model& a, const Model& b) {
  ASSERT_EQ(a.parameters().size(), b.parameters().size());
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(a.parameters()[i]->value, b.parameters()[i]->value))
        << a.parameters()[i]->name;
  }
}

// Writes a file of these tensors and loads it.
class LoadModel : public ::testing::Test {
 protected:
  LoadReport load(Model& model, const NamedTensors& tensors) {
    write_safetensors(path(), tensors);
    return load_weights(model, path());
  }
  std::string load_error(Model& model, const NamedTensors& tensors) {
    return error_of([&] { load(model, tensors); });
  }
  std::filesystem::path path() const { return folder_.path() / "m.safetensors"; }
  const TemporaryFolder folder_;
};

TEST_F(LoadModel, EveryFamilyComesBackFromItsFolderBitForBit) {
  for (const char* name : {"llama3-tiny", "llama3.1-tiny", "llama3.2-tiny", "qwen1.5-tiny",
                           "qwen2.5-tiny", "gemma2-tiny", "gemma3-tiny", "vaultgemma-tiny",
                           "dit-tiny", "dit-xl-tiny", "linear-tiny"}) {
    const auto model = models::make_model(options_of(name));
    const auto folder = folder_.path() / "saved";
    save_model(*model, folder);
    LoadReport report;
    ModelOptions options = options_from_config(folder);
    options.device = "cpu";
    const auto back = load_model(options, folder, &report);
    expect_equal(*model, *back);
    EXPECT_EQ(report.loaded.size(), model->parameters().size());
    EXPECT_THAT(report.initialised, IsEmpty());
    EXPECT_THAT(report.unused, IsEmpty());
    EXPECT_EQ(back->options().weights, folder.string());
    EXPECT_EQ(back->options().task, model->options().task);
  }
}

TEST_F(LoadModel, SavesIntoShards) {
  const auto model = models::make_model(options_of("llama3-tiny", "lm"));
  const auto files = save_model(*model, folder_.path() / "saved", 600'000);
  EXPECT_GT(files.size(), 3u);
  auto back = other_start(options_of("llama3-tiny", "lm"));
  load_weights(*back, folder_.path() / "saved");
  expect_equal(*model, *back);
}

TEST_F(LoadModel, ConvertsToTheFormatOfTheModel) {
  const auto model = models::make_model(options_of("llama3-tiny"));
  ModelOptions options = options_of("llama3-tiny");
  options.dtype = "bfloat16";
  const auto back = other_start(options);
  load(*back, tensors_of(*model));
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_TRUE(
        at::equal(back->parameters()[i]->value, model->parameters()[i]->value.to(at::kBFloat16)));
  }
}

TEST_F(LoadModel, ALanguageModelsFileGivesAClassifierAllButItsHead) {
  const auto lm = models::make_model(options_of("llama3-tiny", "lm"));
  const auto classifier = other_start(options_of("llama3-tiny", "classify"));
  const at::Tensor head_before = classifier->parameter("score.weight").value.clone();
  const LoadReport report = load(*classifier, tensors_of(*lm));
  EXPECT_THAT(report.initialised, ElementsAre("score.weight"));
  EXPECT_THAT(report.unused, ElementsAre("lm_head.weight"));
  EXPECT_EQ(report.loaded.size(), classifier->parameters().size() - 1);
  EXPECT_TRUE(at::equal(classifier->parameter("score.weight").value, head_before));
  EXPECT_TRUE(at::equal(classifier->parameter("model.norm.weight").value,
                        lm->parameter("model.norm.weight").value));
}

TEST_F(LoadModel, TakesTheTextPartOfAModelThatSeesImages) {
  const auto model = models::make_model(options_of("gemma3-tiny", "lm"));
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    NamedTensors whole = {{"vision_tower.patch.weight", at::ones({2, 2})}};
    for (const auto& [name, tensor] : tensors_of(*model))
      whole.emplace_back(prefix + name.substr(6), tensor);
    const auto back = other_start(options_of("gemma3-tiny", "lm"));
    const LoadReport report = load(*back, whole);
    expect_equal(*model, *back);
    EXPECT_THAT(report.unused, ElementsAre("vision_tower.patch.weight"));
  }
}

TEST_F(LoadModel, TakesABareBaseModelWithoutPrefix) {
  const auto model = models::make_model(options_of("llama3-tiny", "classify"));
  NamedTensors bare;
  for (const auto& [name, tensor] : tensors_of(*model)) {
    if (name.rfind("model.", 0) == 0) bare.emplace_back(name.substr(6), tensor);
  }
  const auto back = other_start(options_of("llama3-tiny", "classify"));
  const LoadReport report = load(*back, bare);
  EXPECT_THAT(report.initialised, ElementsAre("score.weight"));
  EXPECT_THAT(report.unused, IsEmpty());
  EXPECT_TRUE(at::equal(back->parameter("model.layers.1.mlp.up_proj.weight").value,
                        model->parameter("model.layers.1.mlp.up_proj.weight").value));
}

TEST_F(LoadModel, ATiedHeadMayBeAbsentOrTheSameButNotAnother) {
  const ModelOptions options = options_of("qwen2.5-tiny", "lm");
  const auto model = models::make_model(options);
  const auto back = other_start(options);
  NamedTensors tensors = tensors_of(*model);
  EXPECT_THAT(load(*back, tensors).unused, IsEmpty());
  expect_equal(*model, *back);
  tensors.emplace_back("lm_head.weight", tensor_of(tensors, "model.embed_tokens.weight"));
  EXPECT_THAT(load(*back, tensors).unused, ElementsAre("lm_head.weight"));
  tensor_of(tensors, "lm_head.weight") = tensor_of(tensors, "lm_head.weight") + 1;
  EXPECT_THAT(load_error(*back, tensors),
              HasSubstr("expected 'lm_head.weight' equal to the embedding, as tie_embeddings = "
                        "\"yes\" says, got other numbers; build with tie_embeddings = \"no\""));
}

TEST_F(LoadModel, AnUntiedModelNeedsAHead) {
  const auto model = models::make_model(options_of("llama3-tiny", "lm"));
  NamedTensors tensors = tensors_of(*model);
  remove_tensor(tensors, "lm_head.weight");
  EXPECT_THAT(load_error(*model, tensors), AllOf(HasSubstr("got none for 'lm_head.weight'"),
                                                 HasSubstr("build with tie_embeddings = \"yes\"")));
}

TEST_F(LoadModel, ListsTheFirstMissingNamesAndChangesNothing) {
  const auto model = models::make_model(options_of("llama3-tiny"));
  const auto before = models::make_model(options_of("llama3-tiny"));
  NamedTensors tensors = tensors_of(*other_start(options_of("llama3-tiny")));
  const size_t all = tensors.size();
  std::erase_if(tensors, [](const auto& t) { return t.first.find("mlp") != std::string::npos; });
  const std::string text = load_error(*model, tensors);
  EXPECT_THAT(text,
              HasSubstr(fmt::format(
                  "expected all {} parameters of model 'llama3-tiny', got none for "
                  "'model.layers.0.mlp.gate_proj.weight', 'model.layers.0.mlp.up_proj.weight', "
                  "'model.layers.0.mlp.down_proj.weight' and 3 more",
                  all)));
  expect_equal(*model, *before);
}

TEST_F(LoadModel, NamesShapesAndFormatsThatDoNotFitAndChangesNothing) {
  const auto model = models::make_model(options_of("llama3-tiny"));
  const auto before = models::make_model(options_of("llama3-tiny"));
  NamedTensors tensors = tensors_of(*other_start(options_of("llama3-tiny")));
  tensor_of(tensors, "model.norm.weight") = at::ones({64});
  EXPECT_THAT(load_error(*model, tensors),
              HasSubstr("expected tensors that fit model 'llama3-tiny', got 'model.norm.weight': "
                        "[64] instead of [128]; set the model's sizes"));
  tensor_of(tensors, "model.norm.weight") = at::ones({128}, at::kChar);
  EXPECT_THAT(load_error(*model, tensors),
              HasSubstr("'model.norm.weight': I8 instead of floating-point numbers"));
  tensor_of(tensors, "model.norm.weight") = at::ones({128});
  tensor_of(tensors, "score.weight") = at::ones({9, 128});
  EXPECT_THAT(load_error(*model, tensors),
              HasSubstr("'score.weight': [9, 128] instead of [3, 128]; set num_labels to that of "
                        "the file"));
  expect_equal(*model, *before);
}

TEST_F(LoadModel, AModelThatIsNotThereIsNamedBeforeItIsBuilt) {
  // 16 GB of random numbers would be drawn first otherwise.
  EXPECT_THAT(
      error_of([] { load_model(options_of("llama3.1-8b"), "meta-llama/Llama-3.1-8B-Instruct"); }),
      HasSubstr("moonshard downloads nothing"));
}

// The format that a folder names counts where float32 would lose digits.
TEST_F(LoadModel, AFolderByItsNameAloneGivesEveryValueBack) {
  for (const char* format : {"float64", "float32", "bfloat16"}) {
    const TemporaryFolder folder;
    ModelOptions options = options_of("llama3.2-tiny", "lm");
    options.dtype = format;
    const auto model = models::make_model(options);
    save_model(*model, folder.path());
    ModelOptions by_folder;
    by_folder.model = folder.path().string();
    by_folder.device = "cpu";
    const auto back = weights::make_model(by_folder);
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(back->parameters()[i]->value.to(at::kDouble),
                            model->parameters()[i]->value.to(at::kDouble)))
          << format << " " << model->parameters()[i]->name;
    }
  }
}

TEST_F(LoadModel, WhatTheFileDoesNotHaveStartsAsWithoutAFile) {
  const TemporaryFolder folder;
  const auto lm = models::make_model(options_of("llama3-tiny", "lm"));
  save_model(*lm, folder.path());
  ModelOptions options = options_of("llama3-tiny", "classify");
  options.weights = folder.path().string();
  const auto classifier = weights::make_model(options);
  const auto fresh = models::make_model(options_of("llama3-tiny", "classify"));
  EXPECT_TRUE(at::equal(classifier->parameter("score.weight").value,
                        fresh->parameter("score.weight").value));
}

}  // namespace
}  // namespace moonshard::weights
