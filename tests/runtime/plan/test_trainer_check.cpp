// Trainers of scripts: refused where they cannot fit, and explained where memory runs out.
#include <gtest/gtest.h>

#include "runtime/comm/world.h"
#include "runtime/data/source.h"
#include "runtime/models/registry.h"
#include "runtime/plan/trainer_check.h"
#include "runtime/profile/memory.h"

namespace moonshard::plan {
namespace {

train::TrainerParts tiny_parts(int64_t batch_size, int64_t seq_length) {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.device = "cpu";
  options.seed = 1;
  train::TrainerParts parts;
  parts.model = models::make_model(options);
  parts.data =
      std::make_unique<data::SyntheticData>(parts.model->options(), batch_size, seq_length);
  parts.world = comm::make_world("auto", "nvlink");
  parts.optimizer.optimizer = "adam";
  return parts;
}

TEST(TrainerCheck, RefusesWithTheLargestBatchThatFits) {
  const train::TrainerParts parts = tiny_parts(1, 1024);
  EXPECT_NO_THROW(refuse_trainer_that_cannot_fit(parts, {1, 1024}));
  try {
    refuse_trainer_that_cannot_fit(parts, {int64_t{1} << 24, 1024});
    FAIL() << "sixteen million samples fit";
  } catch (const OutOfMemoryError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("trainer: llama3-tiny cannot fit into memory: "), std::string::npos)
        << text;
    EXPECT_NE(text.find("-> batch_size = "), std::string::npos) << text;
    EXPECT_NE(text.find("the largest batch that is predicted to fit"), std::string::npos) << text;
  }
}

TEST(TrainerCheck, ABatchOfUnknownSizeIsRefusedForWhatIsHeldAlone) {
  const train::TrainerParts parts = tiny_parts(1, 1024);
  const experiment::ExperimentOptions options = options_of_parts(parts, {0, 0});
  EXPECT_EQ(options.batch_size, 1);
  EXPECT_EQ(options.optimizer, "adam");
  EXPECT_EQ(options.hidden_dim, parts.model->options().hidden_dim);
  EXPECT_NO_THROW(refuse_trainer_that_cannot_fit(parts, {0, 0}));
}

TEST(TrainerCheck, AStepThatRunsOutOfMemorySaysWhatWasHeldAndWhatSavesIt) {
  profile::install_cpu_memory_hook();
  train::TrainerParts parts = tiny_parts(64, 256);
  const experiment::ExperimentOptions options = options_of_parts(parts, {64, 256});
  train::Trainer trainer(std::move(parts));
  const c10::Device cpu(c10::kCPU);
  constexpr int64_t kRoom = 24 << 20;
  profile::set_cpu_memory_limit(profile::read_memory(cpu).allocated_bytes + kRoom);
  const StepMemoryWatch watch(cpu);
  std::string text;
  try {
    trainer.step();
  } catch (const OutOfMemoryError& error) {
    try {
      watch.rethrow(error, options, 1);
    } catch (const OutOfMemoryError& explained) {
      text = explained.what();
    }
  }
  profile::set_cpu_memory_limit(0);
  EXPECT_NE(text.find("in a step of 64 samples"), std::string::npos) << text;
  EXPECT_NE(text.find("were held"), std::string::npos) << text;
  EXPECT_NE(text.find("more were asked for"), std::string::npos) << text;
  EXPECT_NE(text.find("-> batch_size = "), std::string::npos) << text;
}

}  // namespace
}  // namespace moonshard::plan
