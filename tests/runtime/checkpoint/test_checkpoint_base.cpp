// Checkpoints of LoRA runs whose frozen weights lie in a folder: they are left out, and a resume
// wants the same ones.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_index.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/weights/load_model.h"
#include "tests/runtime/checkpoint/checkpoint_support.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A folder with weights of llama_setting's model.
void write_base(const fs::path& folder, int64_t seed) {
  Setting setting = llama_setting();
  setting.model.seed = seed;
  setting.model.frozen = "";
  weights::save_model(*models::make_model(setting.model), folder);
}

struct LoraTraining {
  explicit LoraTraining(const fs::path& base, const std::string& parallel = "none")
      : setting(llama_setting(parallel)) {
    setting.model.frozen = "";
    setting.model.lora_rank = 2;
    setting.model.weights = base.string();
    setting.model.deferred = parallel == "fsdp";
    model = weights::make_model(setting.model);
    trainer = std::make_unique<train::Trainer>(
        train::TrainerParts{model,
                            setting.clip,
                            setting.optimizer,
                            std::make_unique<data::SyntheticData>(model->options(), 3, 5),
                            {},
                            setting.sharding,
                            nullptr,
                            with_reproducible_noise()});
  }
  void steps(int64_t count) {
    for (int64_t i = 0; i < count; ++i) trainer->step();
  }
  std::vector<at::Tensor> weights_now() const {
    trainer->gather();
    std::vector<at::Tensor> list;
    for (const auto& parameter : model->parameters()) list.push_back(parameter->value.clone());
    return list;
  }
  Setting setting;
  std::shared_ptr<models::Model> model;
  std::unique_ptr<train::Trainer> trainer;
};

bool equal_lists(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return a.size() == b.size();
}

int64_t bytes_of(const fs::path& folder) {
  int64_t sum = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") sum += static_cast<int64_t>(entry.file_size());
  return sum;
}

TEST(CheckpointBase, AdaptersAloneAreSavedAndGoOnUnderEveryWrapper) {
  const TemporaryFolder folder;
  const fs::path base = folder.path() / "base", moved = folder.path() / "moved";
  write_base(base, 3);
  LoraTraining whole(base);
  whole.steps(4);
  for (const char* parallel : {"none", "ddp", "fsdp"}) {
    LoraTraining first(base, parallel);
    first.steps(2);
    const fs::path saved = save(*first.trainer, folder.path() / parallel);
    const CheckpointIndex index = read_index(saved);
    ASSERT_TRUE(index.base);
    EXPECT_EQ(index.base->path, base.string());
    EXPECT_EQ(index.find("model.embed_tokens.weight"), nullptr);
    EXPECT_NE(index.find("model.layers.0.mlp.up_proj.lora_A.weight"), nullptr);
    Saver saver(*first.trainer);
    SaveOptions everything;
    everything.whole = true;
    const fs::path complete = saver.save(folder.path() / "whole" / parallel, everything);
    EXPECT_FALSE(read_index(complete).base);
    EXPECT_LT(bytes_of(saved), bytes_of(complete) / 2);
    EXPECT_TRUE(read_index(saver.save(folder.path() / "again" / parallel)).base);
    for (const char* other : {"none", "fsdp"}) {
      LoraTraining second(base, other);
      EXPECT_EQ(resume(*second.trainer, saved), 2);
      second.steps(2);
      EXPECT_TRUE(equal_lists(second.weights_now(), whole.weights_now()))
          << parallel << " to " << other;
    }
  }
  // The files may lie elsewhere: they are what counts.
  fs::copy(base, moved);
  LoraTraining elsewhere(moved);
  EXPECT_EQ(resume(*elsewhere.trainer, folder.path() / "none"), 2);
}

TEST(CheckpointBase, AnotherBaseIsRefused) {
  const TemporaryFolder folder;
  const fs::path base = folder.path() / "base", other = folder.path() / "other";
  write_base(base, 3);
  write_base(other, 4);
  LoraTraining first(base);
  first.steps(1);
  save(*first.trainer, folder.path() / "saved");
  LoraTraining second(other);
  EXPECT_THAT([&] { resume(*second.trainer, folder.path() / "saved"); },
              ThrowsMessage<UsageError>(testing::AllOf(
                  HasSubstr("expected a model made from the weights that the run had"),
                  HasSubstr(base.string()), HasSubstr(other.string()))));
  LoraTraining none("");
  EXPECT_THAT([&] { resume(*none.trainer, folder.path() / "saved"); },
              ThrowsMessage<UsageError>(HasSubstr("got one made without")));
}

// A whole checkpoint may have other frozen weights than the files: they stay with the run.
TEST(CheckpointBase, AfterAWholeCheckpointAllIsSaved) {
  const TemporaryFolder folder;
  const fs::path base = folder.path() / "base", other = folder.path() / "other";
  write_base(base, 3);
  write_base(other, 4);
  LoraTraining first(other);
  SaveOptions everything;
  everything.whole = true;
  Saver(*first.trainer).save(folder.path() / "saved", everything);
  LoraTraining second(base);
  Saver saver(*second.trainer);
  EXPECT_TRUE(read_index(saver.save(folder.path() / "before")).base);
  resume(*second.trainer, folder.path() / "saved");
  EXPECT_TRUE(equal_lists(second.weights_now(), first.weights_now()));
  EXPECT_FALSE(read_index(saver.save(folder.path() / "after")).base);
}

TEST(CheckpointBase, RunsWithoutAdaptersOrFilesAreSavedWhole) {
  const TemporaryFolder folder;
  LoraTraining random_base("");
  EXPECT_FALSE(read_index(save(*random_base.trainer, folder.path() / "random")).base);
  Training plain(llama_setting());
  const CheckpointIndex index = read_index(save(plain.trainer, folder.path() / "plain"));
  EXPECT_FALSE(index.base);
  EXPECT_NE(index.find("model.layers.0.mlp.up_proj.weight"), nullptr) << "frozen by an option";
}

}  // namespace
}  // namespace moonshard::checkpoint
