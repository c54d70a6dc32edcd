// The table of legal moves of a unit: every state and event, one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/base/check.h"
#include "runtime/sharding/shard_state.h"

namespace moonshard::sharding {
namespace {

using testing::HasSubstr;

bool is_legal(Storage storage, Phase phase, Event event) {
  try {
    next_state({storage, phase}, event, "u");
    return true;
  } catch (const InternalError&) {
    return false;
  }
}

TEST(ShardState, OnlyTheMovesThatAStepNeedsAreLegal) {
  // Written down once more, by hand, as (event, storage, phases): the table must not grow unseen.
  const std::set<std::string> expected{
      "start_gather sharded idle",
      "start_gather sharded forward",
      "start_gather sharded forward_done",
      "start_gather sharded backward",
      "start_gather sharded backward_done",
      "finish_gather gathering idle",
      "finish_gather gathering forward",
      "finish_gather gathering forward_done",
      "finish_gather gathering backward",
      "finish_gather gathering backward_done",
      "release whole idle",
      "release whole forward_done",
      "release whole backward_done",
      "step_aside whole forward",
      "step_aside whole backward",
      "use_forward whole idle",
      "use_forward whole forward",
      "end_forward whole forward",
      "use_backward whole forward_done",
      "use_backward whole backward",
      "use_backward whole backward_done",
      "end_backward whole backward",
  };
  std::set<std::string> found;
  for (const Storage storage : kStorages) {
    for (const Phase phase : kPhases) {
      for (const Event event : kEvents) {
        if (event == Event::BeginMicroBatch || event == Event::Reduce || event == Event::Abandon)
          continue;
        if (is_legal(storage, phase, event))
          found.insert(fmt::format("{} {} {}", name_of(event), name_of(storage), name_of(phase)));
      }
    }
  }
  EXPECT_EQ(found, expected);
}

TEST(ShardState, AMicroBatchBeginsOnlyWhenNoLayerRuns) {
  for (const Storage storage : kStorages) {
    EXPECT_TRUE(is_legal(storage, Phase::Idle, Event::BeginMicroBatch));
    EXPECT_TRUE(is_legal(storage, Phase::BackwardDone, Event::BeginMicroBatch));
    EXPECT_FALSE(is_legal(storage, Phase::Forward, Event::BeginMicroBatch));
    EXPECT_FALSE(is_legal(storage, Phase::Backward, Event::BeginMicroBatch));
  }
}

TEST(ShardState, GradientsLeaveOnlyAfterTheUnitHasRunForwards) {
  for (const Storage storage : kStorages) {
    EXPECT_FALSE(is_legal(storage, Phase::Idle, Event::Reduce));
    EXPECT_FALSE(is_legal(storage, Phase::Forward, Event::Reduce));
    EXPECT_TRUE(is_legal(storage, Phase::Backward, Event::Reduce));
  }
}

TEST(ShardState, AnAbandonedStepLeadsToTheStartFromAnywhere) {
  for (const Storage storage : kStorages) {
    for (const Phase phase : kPhases) {
      const UnitState after = next_state({storage, phase}, Event::Abandon, "u");
      EXPECT_EQ(after, (UnitState{storage, Phase::Idle}));
    }
  }
}

TEST(ShardState, AWrongMoveNamesUnitStateAndEvent) {
  try {
    next_state({Storage::Sharded, Phase::Backward}, Event::UseBackward, "model.layers.3");
    FAIL() << "expected an error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unit 'model.layers.3'"));
    EXPECT_THAT(error.what(), HasSubstr("is sharded in phase backward"));
    EXPECT_THAT(error.what(), HasSubstr("use_backward"));
  }
}

}  // namespace
}  // namespace moonshard::sharding
