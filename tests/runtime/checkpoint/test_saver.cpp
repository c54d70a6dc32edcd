// Saves behind the steps, those that stay, and runs that go on by themselves. Several ranks are
// durable_spec.lua.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/durable.h"
#include "tests/runtime/checkpoint/checkpoint_support.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr SaveOptions kBehind{.wait = false, .keep = 0, .keep_every = 0};

std::vector<std::string> saved_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const std::string& name : names_in(folder))
    if (name.starts_with("step_")) names.push_back(name);
  return names;
}

TEST(Saver, BehindTheStepsWritesTheStateOfItsMoment) {
  const TemporaryFolder folder;
  Training run(llama_setting()), straight(llama_setting());
  Saver saver(run.trainer);
  run.steps(2);
  const fs::path path = saver.save(folder.path(), kBehind);
  run.steps(3);  // changes every tensor in place while it is written
  const auto outcomes = saver.finish();
  ASSERT_EQ(outcomes.size(), 1);
  EXPECT_EQ(outcomes[0].error, "");
  EXPECT_EQ(outcomes[0].step, 2);
  EXPECT_EQ(outcomes[0].path, path);
  EXPECT_TRUE(saver.finish().empty()) << "said once";

  straight.steps(2);
  Training resumed(llama_setting());
  EXPECT_EQ(resume(resumed.trainer, folder.path()), 2);
  EXPECT_TRUE(same(resumed.weights(), straight.weights()));
  resumed.steps(3);
  EXPECT_TRUE(same(resumed.weights(), run.weights()));
}

TEST(Saver, WaitsForTheSaveBeforeAndForTheLastOne) {
  const TemporaryFolder folder;
  {
    Training run(llama_setting());
    Saver saver(run.trainer);
    for (int i = 0; i < 4; ++i) {
      run.steps(1);
      saver.save(folder.path(), kBehind);
    }
  }
  EXPECT_THAT(saved_in(folder.path()),
              ElementsAre("step_00000001", "step_00000002", "step_00000003", "step_00000004"));
  for (const std::string& name : names_in(folder.path()))
    EXPECT_EQ(name.find("partial"), std::string::npos);
}

TEST(Saver, FailuresBehindTheStepsAreToldAndTheOlderOneStands) {
  const TemporaryFolder folder;
  Training run(llama_setting());
  Saver saver(run.trainer);
  run.steps(1);
  saver.save(folder.path());
  run.steps(1);
  // The finished folder cannot take the name of a file.
  write_text(folder.path() / "step_00000002", "in the way");
  saver.save(folder.path(), kBehind);
  run.steps(1);
  EXPECT_EQ(run.trainer.state().step, 3);
  // The next save does not bury the failure of the one before.
  saver.save(folder.path(), kBehind);
  const auto outcomes = saver.finish();
  ASSERT_EQ(outcomes.size(), 2);
  EXPECT_EQ(outcomes[0].step, 2);
  EXPECT_THAT(outcomes[0].error, HasSubstr("step_00000002"));
  EXPECT_EQ(outcomes[1].error, "");
  Training resumed(llama_setting());
  EXPECT_EQ(resume(resumed.trainer, folder.path()), 3);
  fs::remove_all(folder.path() / "step_00000003");
  EXPECT_EQ(resume(resumed.trainer, folder.path() / "step_00000001"), 1);
}

TEST(Saver, KeepsTheNewestAndEveryTenth) {
  const TemporaryFolder folder;
  Training run(linear_setting());
  Saver saver(run.trainer);
  for (int i = 1; i <= 24; ++i) {
    run.steps(1);
    if (i % 2 == 0) saver.save(folder.path(), {.wait = i % 4 == 0, .keep = 3, .keep_every = 10});
  }
  saver.finish();
  EXPECT_THAT(saved_in(folder.path()),
              ElementsAre("step_00000010", "step_00000020", "step_00000022", "step_00000024"));
  EXPECT_THAT([&] { saver.save(folder.path(), {.wait = true, .keep = -1}); },
              ThrowsMessage<UsageError>(HasSubstr("at least 0")));
}

TEST(Checkpoints, AreListedFromTheOneThatLatestNames) {
  const TemporaryFolder folder;
  for (const char* name : {"step_00000010", "step_00000030", "step_00000020"}) {
    fs::create_directory(folder.path() / name);
    write_text(folder.path() / name / "index.json", "{}");
  }
  fs::create_directory(folder.path() / "step_00000040");  // no index: never finished
  EXPECT_THAT(checkpoints_newest_first(folder.path()),
              ElementsAre("step_00000030", "step_00000020", "step_00000010"));
  write_text(folder.path() / "latest", "step_00000020\n");
  EXPECT_THAT(checkpoints_newest_first(folder.path()),
              ElementsAre("step_00000020", "step_00000030", "step_00000010"));
  write_text(folder.path() / "latest", "../step_00000020\n");
  EXPECT_EQ(checkpoints_newest_first(folder.path())[0], "step_00000030");
}

// ---- runs that go on by themselves -------------------------------------------------------------

// One process's part of a durable run.
struct Part {
  Part(const Setting& setting, const fs::path& folder, DurableOptions options)
      : training(setting),
        saver(training.trainer),
        durable(training.trainer, saver, folder, options) {}
  void step() {
    durable.before_step();
    durable.after_step(training.trainer.step().step);
  }

  Training training;
  Saver saver;
  DurableRun durable;
};

DurableOptions every(int64_t steps) {
  DurableOptions options;
  options.every = steps;
  return options;
}

TEST(DurableRun, LosesTheStepsSinceTheLastSaveAndNoMore) {
  const TemporaryFolder folder;
  for (int life = 0; life < 4; ++life) {
    Part part(llama_setting(), folder.path(), every(3));
    EXPECT_EQ(part.durable.resumed_step(), life == 0 ? std::nullopt : std::optional(3 * life));
    for (int i = 0; i < 5; ++i) part.step();
  }
  Part last(llama_setting(), folder.path(), every(3));
  Training straight(llama_setting());
  straight.steps(12);
  EXPECT_TRUE(same(last.training.weights(), straight.weights()));
  EXPECT_EQ(last.training.trainer.privacy_steps(), 12);
  EXPECT_THAT(saved_in(folder.path()), ElementsAre("step_00000009", "step_00000012"));
}

TEST(DurableRun, PassesOverADamagedCheckpointAndSaysSo) {
  const TemporaryFolder folder;
  {
    Part part(llama_setting(), folder.path(), every(2));
    for (int i = 0; i < 4; ++i) part.step();
  }
  const fs::path newest = folder.path() / "step_00000004" / "rank00000.safetensors";
  std::string text = text_of(newest);
  text.back() = static_cast<char>(text.back() ^ 4);
  write_text(newest, text);
  {
    Part part(llama_setting(), folder.path(), every(2));
    EXPECT_EQ(part.durable.resumed_step(), 2);
    EXPECT_THAT(part.durable.take_warnings(),
                ElementsAre(HasSubstr("passed over a checkpoint: " + newest.string())));
  }
  // Never from the start, as if there had been nothing.
  fs::remove(folder.path() / "step_00000002" / "rank00000.safetensors");
  EXPECT_THAT([&] { Part(llama_setting(), folder.path(), every(2)); },
              ThrowsMessage<IoError>(HasSubstr("expected a whole checkpoint to go on from")));
}

TEST(DurableRun, ASaveThatFailsIsAWarning) {
  const TemporaryFolder folder;
  for (const bool waits : {false, true}) {
    const fs::path here = folder.path() / (waits ? "waits" : "behind");
    DurableOptions options = every(2);
    options.wait = waits;
    Part part(llama_setting(), here, options);
    write_text(here / "step_00000002", "in the way");
    for (int i = 0; i < 5; ++i) part.step();
    part.saver.finish();
    EXPECT_THAT(part.durable.take_warnings(),
                ElementsAre(HasSubstr("the checkpoint of step 2 was not saved: ")));
    EXPECT_THAT(saved_in(here), ElementsAre("step_00000002", "step_00000004"));
  }
}

// Of a large model that takes longer than the copy: no step is to wait for it.
TEST(DurableRun, TakesTheMemoryOfItsCopiesBehindTheFirstSteps) {
  const TemporaryFolder folder;
  Part part(llama_setting(), folder.path(), every(100));
  EXPECT_FALSE(part.saver.is_prepared());
  for (int i = 0; i < 3; ++i) part.step();
  EXPECT_TRUE(part.saver.is_prepared());
}

TEST(DurableRun, SavesAndEndsOnSigterm) {
  const TemporaryFolder folder;
  {
    Part part(llama_setting(), folder.path(), every(100));
    part.step();
    part.step();
    ::raise(SIGTERM);
    EXPECT_THAT([&] { part.step(); }, ThrowsMessage<Stopped>(HasSubstr("step 3 is saved in")));
    EXPECT_TRUE(was_stopped());
  }
  Training next(llama_setting());
  EXPECT_EQ(resume(next.trainer, folder.path()), 3);
}

}  // namespace
}  // namespace moonshard::checkpoint
