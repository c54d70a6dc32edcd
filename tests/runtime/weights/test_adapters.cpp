// Adapters: what PEFT has saved gives PEFT's logits here, what is saved here opens again, and a
// merged model computes the same. That PEFT opens what is saved here was seen with
// tests/golden/make_adapters.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/train/trainer.h"
#include "runtime/weights/adapters.h"
#include "runtime/weights/load_model.h"
#include "runtime/weights/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::weights {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

fs::path fixture(const std::string& name) {
  return fs::path(MOONSHARD_SOURCE_DIR) / "tests" / "golden" / name;
}

struct Fixture {
  const char *base, *adapter;
};
constexpr Fixture kFixtures[] = {{"llama32_lm_tied", "lora_llama_lm"},
                                 {"llama31_classify", "lora_llama_classify"}};

models::ModelOptions options_of(const fs::path& base, const fs::path& adapter) {
  models::ModelOptions options;
  options.model = base.string();
  options.adapter = adapter.string();
  options.device = "cpu";
  options.dtype = "float32";
  return options;
}

at::Tensor logits(models::Model& model, const fs::path& adapter) {
  const at::NoGradGuard no_grad;
  Batch batch;
  batch.input_ids = SafetensorsFile::open(adapter / "reference.safetensors").read("input_ids");
  batch.attention_mask = at::ones_like(batch.input_ids, at::kBool);
  return model.forward(batch);
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(Adapters, OfPeftGiveItsLogits) {
  for (const Fixture& f : kFixtures) {
    const fs::path adapter = fixture(f.adapter);
    const auto model = make_model(options_of(fixture(f.base), adapter));
    const at::Tensor expected =
        SafetensorsFile::open(adapter / "reference.safetensors").read("logits");
    EXPECT_LE(distance(logits(*model, adapter), expected), 1e-5) << f.adapter;
    const auto bare = make_model(options_of(fixture(f.base), ""));
    EXPECT_GT(distance(logits(*bare, adapter), expected), 0.01) << "the adapter matters";
  }
}

TEST(Adapters, AreSavedAndOpenedAgain) {
  for (const Fixture& f : kFixtures) {
    const TemporaryFolder folder;
    const fs::path adapter = fixture(f.adapter);
    const auto model = make_model(options_of(fixture(f.base), adapter));
    save_adapter(*model, folder.path() / "saved");
    // By its own name: it knows what it belongs to.
    const auto again = make_model(options_of(folder.path() / "saved", ""));
    EXPECT_TRUE(at::equal(logits(*again, adapter), logits(*model, adapter))) << f.adapter;
    EXPECT_EQ(again->options().lora_alpha, model->options().lora_alpha);
  }
}

// PEFT's own field; who trains on may choose another.
TEST(Adapters, KeepTheirDropout) {
  const TemporaryFolder folder;
  const fs::path base = fixture("llama32_lm_tied"), saved = folder.path() / "saved";
  auto options = options_of(base, fixture("lora_llama_lm"));
  EXPECT_EQ(make_model(options)->options().lora_dropout, 0) << "what PEFT wrote there";
  options.lora_dropout = 0.05;
  save_adapter(*make_model(options), saved);
  EXPECT_EQ(make_model(options_of(base, saved))->options().lora_dropout, 0.05);
  auto other = options_of(base, saved);
  other.lora_dropout = 0;
  const auto model = make_model(other);
  EXPECT_EQ(model->options().lora_dropout, 0);
  EXPECT_EQ(merged_model(*model)->options().lora_dropout, 0);
}

TEST(Adapters, AreInTheWeightsOfAMergedModel) {
  for (const Fixture& f : kFixtures) {
    const TemporaryFolder folder;
    const fs::path adapter = fixture(f.adapter);
    const auto model = make_model(options_of(fixture(f.base), adapter));
    const auto whole = merged_model(*model);
    EXPECT_EQ(whole->options().lora_rank, 0);
    EXPECT_LE(distance(logits(*whole, adapter), logits(*model, adapter)), 1e-5) << f.adapter;
    EXPECT_THAT([&] { save_model(*model, folder.path()); },
                ThrowsMessage<UsageError>(HasSubstr("expected a model without adapters")));
    save_model(*whole, folder.path());
    EXPECT_TRUE(at::equal(logits(*make_model(options_of(folder.path(), "")), adapter),
                          logits(*whole, adapter)));
  }
}

TEST(Adapters, OfPartsAreReadByPart) {
  for (const Fixture& f : kFixtures) {
    const fs::path adapter = fixture(f.adapter);
    auto options = options_of(fixture(f.base), adapter);
    const auto whole = make_model(options);
    options.deferred = true;
    const std::shared_ptr<models::Model> parts = make_model(options);
    sharding::ShardingOptions fsdp;
    fsdp.parallel = "fsdp";
    train::TrainerParts trainer_parts{parts};
    trainer_parts.sharding = fsdp;
    train::Trainer trainer(std::move(trainer_parts));
    trainer.gather();
    EXPECT_TRUE(at::equal(logits(*parts, adapter), logits(*whole, adapter))) << f.adapter;
  }
}

TEST(Adapters, ThatDoNotFitAreRefused) {
  const fs::path adapter = fixture("lora_llama_lm");
  EXPECT_THAT([&] { make_model(options_of(fixture("qwen15_lm"), adapter)); },
              ThrowsMessage<UsageError>(HasSubstr("adapter")));
  auto other_rank = options_of(fixture("llama32_lm_tied"), adapter);
  other_rank.lora_rank = 8;
  EXPECT_THAT([&] { make_model(other_rank); },
              ThrowsMessage<UsageError>(
                  HasSubstr("expected option 'lora_rank' as the adapter has it, 4, got 8")));
  EXPECT_THAT(
      [&] { make_model(options_of(fixture("llama32_lm_tied"), fixture("qwen15_lm"))); },
      ThrowsMessage<UsageError>(HasSubstr("expected a folder with an adapter_config.json")));
  const auto bare = make_model(options_of(fixture("llama32_lm_tied"), ""));
  const TemporaryFolder folder;
  EXPECT_THAT([&] { save_adapter(*bare, folder.path()); },
              ThrowsMessage<UsageError>(HasSubstr("expected a model with adapters")));
}

TEST(Adapters, StartAsTheModelWithoutThem) {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.device = "cpu";
  options.seed = 5;
  const auto bare = make_model(options);
  options.lora_rank = 4;
  options.param_dtype = "bfloat16";
  const auto adapted = make_model(options);
  for (const auto& parameter : bare->parameters()) {
    const models::Parameter& same = adapted->parameter(parameter->name);
    EXPECT_EQ(same.trainable, same.name == "score.weight") << same.name;
    // What is not trained is kept as it is computed with.
    const auto type = same.trainable ? at::kFloat : at::kBFloat16;
    EXPECT_EQ(same.value.scalar_type(), type) << same.name;
    EXPECT_TRUE(at::equal(same.value, parameter->value.to(type))) << same.name;
  }
  for (const auto& layer : adapted->layers()) {
    const bool has_adapter = layer->block >= 0 && layer->kind == models::kinds::kLinear &&
                             !models::is_adapter_name(layer->weight->name);
    EXPECT_EQ(layer->lora_up != nullptr, has_adapter) << layer->name;
    if (layer->lora_up == nullptr) continue;
    EXPECT_EQ(layer->lora_scale, 2);
    EXPECT_EQ(layer->lora_up->weight->value.abs().sum().item<double>(), 0);
    EXPECT_GT(layer->lora_down->weight->value.abs().sum().item<double>(), 0);
  }
}

TEST(Adapters, NamesThatMeanNothingAreErrors) {
  const auto made = [](auto change) {
    models::ModelOptions options;
    options.model = "llama3-tiny";
    options.device = "cpu";
    change(options);
    return make_model(options);
  };
  const auto targets = made([](auto& o) {
    o.lora_rank = 2;
    o.lora_targets = "q_proj, *.layers.1.mlp.*";
  });
  int64_t adapters = 0;
  for (const auto& parameter : targets->parameters())
    adapters += models::is_adapter_name(parameter->name) ? 1 : 0;
  EXPECT_EQ(adapters, 2 * (2 + 3));
  const auto refused = [&](const char* words, auto change) {
    EXPECT_THAT([&] { made(change); }, ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  refused("got 'q_porj', which matches none", [](auto& o) {
    o.lora_rank = 2;
    o.lora_targets = "q_porj";
  });
  refused("expected lora_rank above 0", [](auto& o) { o.lora_targets = "q_proj"; });
  refused("expected lora_rank above 0", [](auto& o) { o.lora_dropout = 0.1; });
  refused("option 'trained': expected globs that match parameters, got '*.bais'",
          [](auto& o) { o.trained = "*.bais"; });
}

}  // namespace
}  // namespace moonshard::weights
