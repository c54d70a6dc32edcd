// Whole steps under two plans of engine auto: which of them stays, and for how long it is open.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/privacy/plan_trial.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::privacy {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

class PlanTrials : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("MOONSHARD_TUNING", file().c_str(), 1); }
  void TearDown() override { ::unsetenv("MOONSHARD_TUNING"); }
  std::filesystem::path file() const { return folder_.path() / "tuning.json"; }

  PlanTrial opened(const std::string& shapes) {
    PlanTrial trial;
    trial.open("gpu", shapes);
    return trial;
  }

 private:
  TemporaryFolder folder_;
};

// Own and other in turns, from the first step on.
void observe(PlanTrial& trial, const std::vector<double>& ms) {
  for (size_t i = 0; i < ms.size(); ++i) {
    ASSERT_TRUE(trial.is_open()) << i;
    EXPECT_EQ(trial.takes_other(), i % 2 == 1) << i;
    trial.observe({ms[i], 100});
  }
}

TEST_F(PlanTrials, TheOtherPlanWinsWhereItIsFasterInEveryRound) {
  PlanTrial trial = opened("every round");
  CaptureStderr();
  observe(trial, {500, 500, 10, 9.8, 10.5, 9.9});
  EXPECT_NE(GetCapturedStderr().find("9.8 ms where all layers keep the same, 10.0 as planned"),
            std::string::npos);
  EXPECT_FALSE(trial.is_open());
  EXPECT_TRUE(trial.takes_other());
}

TEST_F(PlanTrials, OneRoundInWhichItIsNotEndsIt) {
  PlanTrial first = opened("first round"), second = opened("second round");
  CaptureStderr();
  observe(first, {500, 100, 10, 9.95});
  EXPECT_FALSE(first.is_open() || first.takes_other());
  observe(second, {500, 100, 10, 9, 10, 10});
  EXPECT_FALSE(second.is_open() || second.takes_other());
  EXPECT_EQ(GetCapturedStderr(), "") << "nothing has changed";
}

TEST_F(PlanTrials, WhatWasFoundIsRemembered) {
  PlanTrial won = opened("won"), lost = opened("lost");
  CaptureStderr();
  observe(won, {1, 1, 10, 9, 10, 9});
  observe(lost, {1, 1, 10, 11});
  GetCapturedStderr();
  const Json choices = read_json_file(file())["choices"];
  EXPECT_EQ(choices["gpu | steps of auto won"]["ms"]["one rule for all layers"], 9.0);
  EXPECT_EQ(choices["gpu | steps of auto lost"]["choice"], "layer by layer");
  const PlanTrial again = opened("won"), never = opened("lost");
  EXPECT_FALSE(again.is_open() || never.is_open());
  EXPECT_TRUE(again.takes_other());
  EXPECT_FALSE(never.takes_other());
}

TEST_F(PlanTrials, StepsOfDifferentSizesSayNothing) {
  PlanTrial trial = opened("poisson");
  trial.observe({10, 100});
  trial.observe({10, 101});
  EXPECT_FALSE(trial.is_open() || trial.takes_other());
  EXPECT_FALSE(std::filesystem::exists(file()));
  trial.open("gpu", "again");
  EXPECT_FALSE(trial.is_open()) << "once";
}

TEST_F(PlanTrials, NorDoStepsThatDropSamples) {
  PlanTrial trial = opened("dropped");
  trial.observe({10, 100});
  trial.observe({5, 100, /*dropped=*/1});
  EXPECT_FALSE(trial.is_open() || trial.takes_other());
  EXPECT_FALSE(std::filesystem::exists(file()));
}

}  // namespace
}  // namespace moonshard::privacy
