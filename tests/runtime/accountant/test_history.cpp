// What was spent survives a checkpoint to the last digit, and nothing else is taken for it.
#include "runtime/accountant/epsilon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "tests/runtime/accountant/random.h"

namespace moonshard::accountant {
namespace {

TEST(History, JoinsEqualNeighboursAndKeepsTheOrder) {
  History history;
  history.add({0.01, 1.1, 3});
  history.add({0.01, 1.1, 4});
  history.add({0.02, 1.1, 0});
  history.add({0.02, 1.1, 1});
  history.add({0.01, 1.1, 1});
  ASSERT_EQ(history.phases().size(), 3u);
  EXPECT_EQ(history.phases()[0].steps, 7);
  EXPECT_EQ(history.num_steps(), 9);
  EXPECT_EQ(history.epsilon("rdp", 1e-5).epsilon,
            epsilon_of("rdp", history.phases(), 1e-5).epsilon);
  EXPECT_THROW(history.add({0.5, -1, 1}), UsageError);
  EXPECT_EQ(history.num_steps(), 9) << "a refused phase changes nothing";
}

TEST(History, ResumesExactly) {
  Random random(21);
  History whole, first;
  for (int i = 0; i < 200; ++i) {
    const GaussianPhase phase{random.uniform(), random.spread(0.5, 3), random.whole(1, 50)};
    whole.add(phase);
    first.add(phase);
    // Saved as text and read back between any two phases.
    first = History::from_json(parse_json(first.to_json().dump(), "test"));
  }
  ASSERT_EQ(first.phases().size(), whole.phases().size());
  for (size_t i = 0; i < whole.phases().size(); ++i) {
    EXPECT_EQ(first.phases()[i].q, whole.phases()[i].q);
    EXPECT_EQ(first.phases()[i].sigma, whole.phases()[i].sigma);
    EXPECT_EQ(first.phases()[i].steps, whole.phases()[i].steps);
  }
  EXPECT_EQ(first.epsilon("rdp", 1e-5).epsilon, whole.epsilon("rdp", 1e-5).epsilon);
  EXPECT_TRUE(History::from_json(History().to_json()).empty());
}

TEST(History, RefusesFilesThatAreNone) {
  for (const char* text :
       {"{}", "null", "7", "\"q\"", "[7]", "[[]]", "[{}]", "[{\"q\":0.1,\"sigma\":1}]",
        "[{\"q\":\"0.1\",\"sigma\":1,\"steps\":1}]",
        "[{\"q\":0.1,\"sigma\":1,\"steps\":1,\"x\":1}]", "[{\"q\":1.1,\"sigma\":1,\"steps\":1}]",
        "[{\"q\":-0.1,\"sigma\":1,\"steps\":1}]", "[{\"q\":0.1,\"sigma\":-1,\"steps\":1}]",
        "[{\"q\":0.1,\"sigma\":1,\"steps\":-1}]", "[{\"q\":0.1,\"sigma\":1,\"steps\":1.5}]",
        "[{\"q\":null,\"sigma\":1,\"steps\":1}]", "[{\"q\":true,\"sigma\":1,\"steps\":1}]",
        "[{\"q\":0.1,\"sigma\":[1],\"steps\":1}]"}) {
    EXPECT_THROW(History::from_json(Json::parse(text), "checkpoint"), UsageError) << text;
  }
  Json list = Json::array();
  for (size_t i = 0; i <= History::kMostPhases; ++i) {
    list.push_back({{"q", 0.5}, {"sigma", 1 + static_cast<double>(i)}, {"steps", 1}});
  }
  try {
    History::from_json(list, "checkpoint: privacy");
    FAIL() << "too long";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("checkpoint: privacy: expected at most 10000"));
  }
}

}  // namespace
}  // namespace moonshard::accountant
