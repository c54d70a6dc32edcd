// Intervals of medians and ratios: those of scripts/moonshard/analyze/statistics.lua.
#include "viewer/data/noise.h"

#include <gtest/gtest.h>

namespace moonshard::viewer {
namespace {

TEST(Noise, NamesTheIntervalsThatTheReportsName) {
  const std::vector<double> first = {10, 11, 12, 13, 14, 20}, second = {9, 10, 12, 12.5, 13};
  const auto median = median_interval(first);
  ASSERT_TRUE(median);
  EXPECT_DOUBLE_EQ(median->value, 12.5);
  EXPECT_DOUBLE_EQ(median->low, 10.5);
  EXPECT_DOUBLE_EQ(median->high, 17);
  const auto ratio = ratio_interval(first, second);
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->value, 12.5 / 12);
  EXPECT_DOUBLE_EQ(ratio->low, 0.875);
  EXPECT_DOUBLE_EQ(ratio->high, 1.6);
  EXPECT_TRUE(ratio->contains(1)) << "within noise";
}

TEST(Noise, TwoStepsSayNothingOfIt) {
  EXPECT_FALSE(median_interval({1, 2}));
  EXPECT_FALSE(ratio_interval({1, 2, 3}, {1, 2}));
  EXPECT_FALSE(ratio_interval({5, 5, 5}, {4, 4, 4})->contains(1));
}

TEST(Noise, StepsOfOlderRecordsStandInTheirRows) {
  PointDetail detail;
  detail.steps.resize(3);
  detail.steps[0].warmup = true;
  detail.steps[0].time_ms = 100;
  detail.steps[1].time_ms = 2;
  detail.steps[2].time_ms = NAN;
  EXPECT_EQ(step_samples(detail), std::vector<double>{2});
  detail.time.samples_ms = {3, -1};
  EXPECT_EQ(step_samples(detail), std::vector<double>{3});
}

}  // namespace
}  // namespace moonshard::viewer
