// Engine auto's choice between kept inputs and kept gradients of samples.
#include <gtest/gtest.h>

#include "runtime/privacy/way_choice.h"

namespace moonshard::privacy {
namespace {

WaysOfReaders readers(Way inputs, Way rows) {
  WaysOfReaders ways;
  ways.inputs = inputs;
  ways.rows = rows;
  return ways;
}

TEST(WayChoice, TheSmallerWayIsLeftOnlyForOneThatIsClearlyFaster) {
  WaysOfReaders slower = readers({100, 10}, {200, 11}), hardly = readers({100, 10}, {200, 9.6}),
                clearly = readers({100, 10}, {200, 9.4}), smaller = readers({200, 10}, {100, 10});
  ASSERT_TRUE(choose_ways({&slower, &hardly, &clearly, &smaller}, {}));
  EXPECT_FALSE(slower.keeps_rows);
  EXPECT_FALSE(hardly.keeps_rows);
  EXPECT_TRUE(clearly.keeps_rows);
  EXPECT_TRUE(smaller.keeps_rows);
}

TEST(WayChoice, TheBudgetGoesWhereAByteSavesMost) {
  WaysOfReaders little = readers({100, 10}, {200, 9}), much = readers({100, 10}, {200, 5});
  WayBudget budget;
  budget.bytes = 350;
  budget.always_kept = 50;
  ASSERT_TRUE(choose_ways({&little, &much}, budget));
  EXPECT_FALSE(little.keeps_rows);
  EXPECT_TRUE(much.keeps_rows);
  budget.always_kept = 51;  // there is no room for either
  ASSERT_TRUE(choose_ways({&little, &much}, budget));
  EXPECT_FALSE(much.keeps_rows);
}

TEST(WayChoice, OfReadersThatAreAlikeAsManyChangeAsTheBudgetAllows) {
  const auto with_budget = [](double bytes) {
    WaysOfReaders blocks = readers({100, 10}, {200, 5});
    blocks.count = 3;
    WayBudget budget;
    budget.bytes = bytes;
    EXPECT_TRUE(choose_ways({&blocks}, budget));
    return blocks;
  };
  EXPECT_FALSE(with_budget(399).keeps_rows);
  EXPECT_TRUE(with_budget(400).keeps_rows);
  EXPECT_EQ(with_budget(400).others, 2);
  EXPECT_EQ(with_budget(599).others, 1);
  EXPECT_EQ(with_budget(600).others, 0);
  EXPECT_FALSE(with_budget(250).keeps_rows) << "less than the smallest ways need";
}

TEST(WayChoice, ABudgetThatWasAskedForMustHoldTheSmallestWays) {
  WaysOfReaders one = readers({100, 10}, {200, 5});
  WayBudget budget;
  budget.bytes = 99;
  EXPECT_TRUE(choose_ways({&one}, budget));
  budget.must_hold = true;
  EXPECT_FALSE(choose_ways({&one}, budget));
}

TEST(WayChoice, TheLargerWayIsTheMostThatAnyTimingsCouldChoose) {
  WaysOfReaders one = readers({100, 10}, {200, 50});
  WayBudget budget;
  budget.takes_larger = true;
  ASSERT_TRUE(choose_ways({&one}, budget));
  EXPECT_TRUE(one.keeps_rows);
}

TEST(OtherPlan, IsTheCheaperOneOfThoseWithOneRule) {
  WaysOfReaders wide = readers({100, 10}, {200, 8}), narrow = readers({110, 10}, {100, 11});
  ASSERT_TRUE(choose_ways({&wide, &narrow}, {}));
  ASSERT_TRUE(wide.keeps_rows && !narrow.keeps_rows) << "rows and inputs: 18, 310 bytes";
  // All inputs take 20, in 210 bytes; the smaller of both, inputs and rows, 21, in 200.
  EXPECT_EQ(other_plan({&wide, &narrow}), (std::vector<bool>{false, false}));
}

TEST(OtherPlan, NeedsNoMoreMemory) {
  WaysOfReaders wide = readers({100, 10}, {110, 9}), narrow = readers({200, 10}, {100, 10});
  ASSERT_TRUE(choose_ways({&wide, &narrow}, {}));
  ASSERT_TRUE(wide.keeps_rows && narrow.keeps_rows) << "19, in 210 bytes";
  // All inputs would take 20, in 300 bytes.
  EXPECT_EQ(other_plan({&wide, &narrow}), (std::vector<bool>{false, true}));
}

TEST(OtherPlan, IsNotTheSameAndNotHopeless) {
  WaysOfReaders alike = readers({100, 10}, {200, 11});
  ASSERT_TRUE(choose_ways({&alike}, {}));
  EXPECT_FALSE(other_plan({&alike})) << "inputs, which are smaller, were chosen";
  WaysOfReaders dear = readers({100, 10}, {200, 7.9}), near = readers({100, 10}, {200, 8.1});
  ASSERT_TRUE(choose_ways({&dear}, {}) && choose_ways({&near}, {}));
  EXPECT_FALSE(other_plan({&dear}));
  EXPECT_EQ(other_plan({&near}), (std::vector<bool>{false}));
  EXPECT_FALSE(other_plan({}));
}

}  // namespace
}  // namespace moonshard::privacy
