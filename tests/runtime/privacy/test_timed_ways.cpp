// Times of the ways to a clipped sum: what is timed, remembered and made of them. On the CPU the
// kernels' references are timed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/base/json.h"
#include "runtime/privacy/timed_ways.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::privacy {
namespace {

using testing::HasSubstr;

TEST(TimedWays, AddUpToWholeWaysAndScaleWithTheSamples) {
  const WayTimes times{5, 3, 7, 8, 2, 4, 6};
  EXPECT_EQ(times.inputs(), 3 + 7 + 2) << "the faster norm, the sum, the update";
  EXPECT_EQ(times.rows(/*summed=*/false), 8 + 4);
  EXPECT_EQ(times.rows(/*summed=*/true), 8 + 6 + 2) << "several ranks: kept, summed, updated";
  const WayTimes twice = times.scaled(2);
  EXPECT_EQ(twice.inputs(), 6 + 14 + 2) << "the update reads one sum, however many samples";
  EXPECT_EQ(twice.rows(/*summed=*/false), 16 + 8);
  EXPECT_EQ(twice.rows(/*summed=*/true), 16 + 12 + 2);
  EXPECT_EQ(times.scaled(0.25).update_rows, 2) << "never less than weights alone";
}

TEST(TimedWays, AreTimedOnceAndRemembered) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "tuning.json";
  ::setenv("MOONSHARD_TUNING", file.c_str(), 1);
  const UnitShape shape{2, 24, 128, {8, 32}};
  const at::Tensor like = at::empty({0}, at::kBFloat16);
  const auto first = timed_ways(shape, like), second = timed_ways(shape, like);
  ::unsetenv("MOONSHARD_TUNING");
  ASSERT_TRUE(first && second);
  for (const double ms : {first->ghost, first->flash, first->sum, first->keep, first->update,
                          first->update_rows, first->sum_rows})
    EXPECT_GT(ms, 0);
  EXPECT_EQ(first->inputs(), second->inputs()) << "the second is the first, remembered";
  const Json choices = read_json_file(file)["choices"];
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_THAT(choices.begin().key(), HasSubstr("B 2 T 24 in 128 out 8,32"));
}

TEST(TimedWays, AllOfAModelHaveAShortName) {
  const UnitShape wide{2, 24, 128, {8, 32}}, narrow{2, 24, 64, {8}};
  EXPECT_THAT(text_of({wide, narrow, wide}, {"rows", "inputs", "rows"}),
              HasSubstr(": B 2 T 24; 2 x 128 to 8,32 rows; 1 x 64 to 8 inputs"));
  EXPECT_NE(text_of({wide, wide}, {"rows", "inputs"}), text_of({wide, wide}, {"rows", "rows"}))
      << "another plan";
  EXPECT_EQ(text_of({}, {}), "");
}

TEST(TimedWays, OfHugeShapesAreNotTimed) {
  const at::Tensor like = at::empty({0}, at::kBFloat16);
  EXPECT_FALSE(timed_ways({8, 1 << 20, 1 << 14, {1 << 14}}, like));
}

}  // namespace
}  // namespace moonshard::privacy
