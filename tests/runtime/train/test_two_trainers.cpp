// Two trainers of one process: each step's phases, spans and ledger are its own, whether the
// trainers take turns, run inside of each other, or have a thread each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/data/source.h"
#include "runtime/models/registry.h"
#include "runtime/profile/memory.h"
#include "runtime/train/step_watch.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {
namespace {

using profile::Owner;

// Runs something before it gives out the batches of another source.
class CallingSource : public data::Source {
 public:
  CallingSource(std::unique_ptr<data::Source> source, std::function<void()> call)
      : source_(std::move(source)), call_(std::move(call)) {}
  Batch next() override {
    call_();
    return source_->next();
  }
  int64_t position() const override { return source_->position(); }
  void go_to(int64_t position) override { source_->go_to(position); }
  data::Sampling sampling() const override { return source_->sampling(); }
  Json shared_facts() const override { return source_->shared_facts(); }
  void use_seed(int64_t seed) override { source_->use_seed(seed); }

 private:
  std::unique_ptr<data::Source> source_;
  std::function<void()> call_;
};

std::unique_ptr<Trainer> make_trainer(
    const std::string& model_name, const std::string& engine,
    const std::function<void()>& call = [] {}) {
  models::ModelOptions options;
  options.model = model_name;
  options.device = "cpu";
  options.hidden_dim = 16;
  if (model_name == "llama3-tiny") options.head_dim = 4;
  options.num_layers = 2;
  TrainerParts parts;
  parts.model = models::make_model(options);
  parts.clip.mode = engine;
  parts.optimizer.optimizer = "adam";
  parts.data = std::make_unique<CallingSource>(
      std::make_unique<data::SyntheticData>(parts.model->options(), 4, 8), call);
  auto trainer = std::make_unique<Trainer>(std::move(parts));
  trainer->step();  // the optimizer's state is made in the first
  trainer->record_details(true);
  return trainer;
}

// What a step must show of itself, and of no other: names in their order, bytes of what lasts.
struct Shown {
  std::vector<std::string> phases, ledger_phases, spans;
  profile::OwnerBytes at_end{};
  int64_t parameters = 0, optimizer_state = 0, engine_kept = 0;
  bool operator==(const Shown&) const = default;
};

void PrintTo(const Shown& shown, std::ostream* out) {
  *out << "phases " << testing::PrintToString(shown.phases) << ", of the ledger "
       << testing::PrintToString(shown.ledger_phases) << ", spans "
       << testing::PrintToString(shown.spans) << ", at end " << testing::PrintToString(shown.at_end)
       << ", parameters " << shown.parameters;
}

Shown shown_by(const StepReport& report) {
  Shown shown;
  for (const auto& [phase, ms] : report.phases) shown.phases.push_back(phase);
  if (report.details == nullptr) return shown;
  const profile::LedgerReport& memory = report.details->memory;
  for (const auto& phase : memory.phases) shown.ledger_phases.push_back(phase.phase);
  for (const profile::Span& span : report.details->spans)
    shown.spans.push_back(span.lane + " " + span.name);
  shown.at_end = memory.at_end;
  const auto at_peak = [&](Owner owner) { return memory.at_peak[static_cast<size_t>(owner)]; };
  shown.parameters = at_peak(Owner::Parameters);
  shown.optimizer_state = at_peak(Owner::OptimizerState);
  int64_t sum = memory.rest_at_peak;
  for (const int64_t bytes : memory.at_peak) sum += bytes;
  EXPECT_EQ(sum, memory.peak_bytes);
  EXPECT_GE(memory.rest_at_peak, 0);
  for (const auto& sample : memory.timeline)
    shown.engine_kept += sample.owners[static_cast<size_t>(Owner::TemporariesGgt)] > 0 ? 1 : 0;
  shown.engine_kept = shown.engine_kept > 0 ? 1 : 0;
  return shown;
}

class TwoTrainers : public testing::Test {
 protected:
  void SetUp() override {
    profile::install_cpu_memory_hook();
    ghost_ = make_trainer("llama3-tiny", "ghost");
    plain_ = make_trainer("linear-tiny", "none");
    ghost_alone_ = shown_by(ghost_->step());
    plain_alone_ = shown_by(plain_->step());
    ASSERT_NE(ghost_alone_, plain_alone_);
    ASSERT_FALSE(ghost_alone_.spans.empty());
    ASSERT_GT(ghost_alone_.parameters, plain_alone_.parameters);
    ASSERT_EQ(ghost_alone_.engine_kept, 1);
    ASSERT_EQ(plain_alone_.engine_kept, 0);
  }

  std::unique_ptr<Trainer> ghost_, plain_;
  Shown ghost_alone_, plain_alone_;
};

TEST_F(TwoTrainers, TakingTurnsEachRecordsItsOwnSteps) {
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(shown_by(ghost_->step()), ghost_alone_);
    EXPECT_EQ(shown_by(plain_->step()), plain_alone_);
  }
}

TEST_F(TwoTrainers, AStepWithinAnotherTrainersStepIsNotPartOfIt) {
  Shown inner;
  const auto outer =
      make_trainer("llama3-tiny", "ghost", [&] { inner = shown_by(plain_->step()); });
  EXPECT_EQ(shown_by(outer->step()), ghost_alone_);
  EXPECT_EQ(inner, plain_alone_);
}

TEST_F(TwoTrainers, AStepThatIsNotWatchedLeavesNothingInTheOneAroundIt) {
  plain_->record_details(false);
  const auto outer =
      make_trainer("llama3-tiny", "ghost", [&] { EXPECT_EQ(plain_->step().details, nullptr); });
  EXPECT_EQ(shown_by(outer->step()), ghost_alone_);
}

TEST_F(TwoTrainers, AStepWithinAStepOfTheSameTrainerIsRefused) {
  Trainer* self = nullptr;
  const auto outer = make_trainer("linear-tiny", "none", [&] {
    if (self != nullptr) {
      EXPECT_THROW(self->step(), UsageError);
    }
  });
  self = outer.get();
  EXPECT_EQ(shown_by(outer->step()), plain_alone_);
}

TEST_F(TwoTrainers, InTwoThreadsEachRecordsItsOwnSteps) {
  constexpr int kSteps = 20;
  std::vector<Shown> ghost, plain;
  const auto train = [](Trainer& trainer, std::vector<Shown>& list) {
    for (int i = 0; i < kSteps; ++i) list.push_back(shown_by(trainer.step()));
  };
  std::thread other([&] { train(*plain_, plain); });
  train(*ghost_, ghost);
  other.join();
  EXPECT_THAT(ghost, testing::Each(ghost_alone_));
  EXPECT_THAT(plain, testing::Each(plain_alone_));
}

TEST_F(TwoTrainers, AFailedStepEndsItsOwnRecordingOnly) {
  int calls = 0;
  const auto failing = make_trainer("linear-tiny", "none", [&] {
    if (++calls == 2) throw UsageError("no data");
  });
  const auto outer = make_trainer("llama3-tiny", "ghost", [&] {
    if (calls == 1) {
      EXPECT_THROW(failing->step(), UsageError);
    }
  });
  EXPECT_EQ(shown_by(outer->step()), ghost_alone_);
  EXPECT_EQ(shown_by(failing->step()), plain_alone_);
}

}  // namespace
}  // namespace moonshard::train
