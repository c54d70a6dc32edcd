// moonshard doctor on checkpoints and weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/examine.h"
#include "runtime/weights/load_model.h"
#include "tests/runtime/checkpoint/checkpoint_support.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void damage(const fs::path& path) {
  std::string text = text_of(path);
  text.back() = static_cast<char>(text.back() ^ 8);
  write_text(path, text);
}

TEST(Examine, FoldersOfCheckpoints) {
  const TemporaryFolder folder;
  Training run(llama_setting());
  std::vector<fs::path> saved;
  for (int i = 0; i < 3; ++i) {
    run.steps(1);
    saved.push_back(save(run.trainer, folder.path()));
  }
  const auto good = examine(folder.path());
  ASSERT_TRUE(good.has_value());
  EXPECT_THAT(good->defects, IsEmpty());
  EXPECT_THAT(good->notes, IsEmpty());
  EXPECT_EQ(good->points, 3u);
  EXPECT_EQ(good->files, 6u);
  EXPECT_THAT(examine(saved[0])->defects, IsEmpty());

  damage(saved[1] / "rank00000.safetensors");
  fs::remove_all(saved[0]);
  const auto bad = examine(folder.path());
  ASSERT_EQ(bad->defects.size(), 1u);
  EXPECT_EQ(bad->defects[0].file, "step_00000002/rank00000.safetensors");
  EXPECT_THAT(bad->defects[0].what, HasSubstr("tensor 'optimizer/mean_square/model.norm.weight': "
                                              "expected CRC-32C"));
  damage(saved[2] / "index.json");
  EXPECT_EQ(examine(folder.path())->defects.size(), 2u);
}

TEST(Examine, ACheckpointThatWasExchangedIsMissedByTheNext) {
  const TemporaryFolder folder, other;
  for (const fs::path& where : {folder.path(), other.path()}) {
    Setting setting = llama_setting();
    setting.model.seed = where == folder.path() ? 11 : 12;
    Training run(setting);
    for (int i = 0; i < 3; ++i) {
      run.steps(1);
      save(run.trainer, where);
    }
  }
  fs::remove_all(folder.path() / "step_00000002");
  fs::copy(other.path() / "step_00000002", folder.path() / "step_00000002",
           fs::copy_options::recursive);
  EXPECT_THAT(examine(folder.path())->notes,
              ElementsAre(HasSubstr("step_00000002 goes on from a checkpoint"),
                          HasSubstr("step_00000003 goes on from a checkpoint")));
}

TEST(Examine, WeightsAndOtherFolders) {
  const TemporaryFolder folder;
  const auto model = models::make_model(llama_setting().model);
  weights::save_model(*model, folder.path(), 1 << 30);
  EXPECT_EQ(examine(folder.path())->files, 3u);
  EXPECT_THAT(examine(folder.path())->defects, IsEmpty());
  damage(folder.path() / "config.json");
  damage(folder.path() / "model.safetensors");
  EXPECT_EQ(examine(folder.path())->defects.size(), 2u);
  EXPECT_EQ(examine(folder.path() / "model.safetensors")->defects.size(), 1u);
  const TemporaryFolder empty;
  EXPECT_FALSE(examine(empty.path()).has_value());
  EXPECT_FALSE(examine(folder.path() / "config.json").has_value());
}

}  // namespace
}  // namespace moonshard::checkpoint
