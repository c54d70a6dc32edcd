// The allocations of a snapshot: what lived when, on top of what, and whose it was.
#include "viewer/tracing/snapshot_blocks.h"

#include <gtest/gtest.h>

#include "tests/viewer/reader_support.h"
#include "viewer/tracing/snapshot_owner.h"

namespace moonshard::viewer {
namespace {

TEST(SnapshotBlocks, LiveFromTheirEventToTheirFree) {
  AllocationReplay replay;
  replay.free(1, 10, 0xA, 100, 7);  // was there before
  replay.alloc(2, 20, 0xB, 50, 1);
  replay.alloc(3, 30, 0xC, 60, 2);
  replay.free(4, 40, 0xB, 50, 7);
  replay.hold(0xC, 60, 3);   // an event made it: nothing new
  replay.hold(0xD, 500, 3);  // nobody saw it come
  const auto list = replay.take(6, 60);
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0].bytes, 500) << "what was there before lies below, the largest at the bottom";
  EXPECT_EQ(list[0].end, 6u);
  EXPECT_EQ(list[1].bytes, 100);
  EXPECT_EQ(list[1].end, 1u);
  EXPECT_EQ(list[1].site, 7u);
  EXPECT_EQ(list[2].begin, 2u);
  EXPECT_EQ(list[2].end, 4u);
  EXPECT_DOUBLE_EQ(list[2].end_us - list[2].begin_us, 20);
  EXPECT_EQ(list[3].end, 6u) << "never freed";
}

TEST(SnapshotBlocks, SinkWhenWhatLiesBelowGoes) {
  const std::vector<SnapshotAllocation> list = {{.begin = 0, .end = 10, .bytes = 100},
                                                {.begin = 1, .end = 5, .bytes = 50},
                                                {.begin = 2, .end = 8, .bytes = 20}};
  const BlockLayout layout = layout_blocks(list);
  ASSERT_EQ(layout.shown.size(), 3u);
  EXPECT_EQ(layout.top, 170);
  ASSERT_EQ(layout.first[3] - layout.first[2], 2u) << "two places of the last block";
  const BlockStep& before = layout.steps[layout.first[2]];
  const BlockStep& after = layout.steps[layout.first[2] + 1];
  EXPECT_EQ(before.foot, 150);
  EXPECT_EQ(before.to, 5u);
  EXPECT_EQ(after.from, 5u);
  EXPECT_EQ(after.foot, 100);
  EXPECT_EQ(block_at(layout, list, 3, 160), 2u);
  EXPECT_EQ(block_at(layout, list, 6, 110), 2u);
  EXPECT_EQ(block_at(layout, list, 6, 160), std::nullopt);
  EXPECT_EQ(block_at(layout, list, 9, 10), 0u);
}

TEST(SnapshotBlocks, OfNoLengthOrNoSizeAreNone) {
  AllocationReplay replay;
  replay.alloc(1, 10, 0xA, 100, 1);
  replay.free(1, 10, 0xA, 100, 7);
  replay.alloc(2, 20, 0xB, 0, 1);
  replay.alloc(3, 30, 0xC, 10, 1);
  replay.alloc(3, 30, 0xD, 20, 1);
  const auto list = replay.take(4, 40);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].bytes, 10) << "of one event they stay in their order";
  EXPECT_EQ(list[1].bytes, 20);
  const std::vector<SnapshotAllocation> damaged = {{.begin = 4, .end = 10, .bytes = 100},
                                                   {.begin = 5, .end = 3, .bytes = 50}};
  EXPECT_EQ(layout_blocks(damaged).shown.size(), 2u);
}

TEST(SnapshotBlocks, ThatGoTogetherLeaveOneStep) {
  const std::vector<SnapshotAllocation> list = {{.begin = 0, .end = 5, .bytes = 100},
                                                {.begin = 1, .end = 5, .bytes = 50},
                                                {.begin = 2, .end = 9, .bytes = 20},
                                                {.begin = 7, .end = 9, .bytes = 10}};
  const BlockLayout layout = layout_blocks(list);
  ASSERT_EQ(layout.first[3] - layout.first[2], 2u);
  EXPECT_EQ(layout.steps[layout.first[2] + 1].foot, 0);
  EXPECT_EQ(layout.steps[layout.first[1]].to, 5u);
  EXPECT_EQ(layout.steps[layout.first[3]].foot, 20) << "on what is left";
  EXPECT_EQ(block_at(layout, list, 0.5, 120), std::nullopt) << "before it came";
  EXPECT_EQ(block_at(layout, list, 8, 25), 3u);
  EXPECT_EQ(block_at(layout, list, 6, 5), 2u);
  EXPECT_EQ(block_at(layout, list, 3, -1), std::nullopt) << "below all";
  EXPECT_TRUE(layout_blocks(list, 0).shown.empty());
}

TEST(SnapshotBlocks, SmallOnesGiveWayToABoundedPicture) {
  std::vector<SnapshotAllocation> list;
  for (uint32_t i = 0; i < 1000; ++i) {  // the first to come is the first to go: all above sink
    list.push_back({.begin = i, .end = 1000 + i, .bytes = 1.0 + i});
  }
  const BlockLayout layout = layout_blocks(list, 10'000);
  EXPECT_LE(layout.steps.size(), 10'000u);
  EXPECT_GT(layout.shown.size(), 50u);
  EXPECT_LT(layout.shown.size(), 1000u);
  EXPECT_EQ(layout.shown.back(), 999u) << "the largest stay";
}

TEST(SnapshotBlocks, TheStackSaysWhoseTheyAre) {
  const auto owner = [](std::vector<StackFrame> stack) { return owner_of_stack(stack); };
  EXPECT_EQ(owner({{"empty", "torch/x.py", 1}, {"step", "torch/optim/adamw.py", 3}}), "optimizer");
  EXPECT_EQ(owner({{"at::empty()", "??"}, {"torch::autograd::Engine::thread_main()", "??"}}),
            "backward");
  EXPECT_EQ(owner({{"forward", "model.py", 9}, {"<module>", "train.py", 2}}), "forward");
  EXPECT_EQ(owner({{"_apply", "torch/nn/modules/module.py", 9}}), "parameters");
  EXPECT_EQ(owner({{"all_gather", "torch/distributed/x.py", 9}, {"forward", "model.py", 1}}),
            "communication");
  EXPECT_EQ(owner({{"at::cuda::setWorkspaceForHandle(x)", "??"}, {"forward", "model.py", 1}}),
            "library workspace");
  EXPECT_EQ(owner({{"at::empty()", "??"}, {"make_batch", "/home/me/train.py", 12}}),
            "make_batch (train.py:12)");
  EXPECT_EQ(owner({{"_PyEval_EvalFrameDefault", "??"}}), "other");
}

TEST(SnapshotBlocks, OfAFileOfTorchAddUpToWhatItHolds) {
  const auto path = source_folder() / "tests/data/viewer/demo_run/points/24d1eb9545458fad";
  const MemorySnapshot snapshot = read_snapshot(path / "snapshot.pickle");
  ASSERT_FALSE(snapshot.allocations.empty());
  EXPECT_EQ(snapshot.num_allocations, snapshot.allocations.size());
  double held = 0;
  for (const SnapshotAllocation& allocation : snapshot.allocations) {
    ASSERT_LT(allocation.site, snapshot.sites.size());
    if (allocation.end >= snapshot.num_events) held += allocation.bytes;
  }
  EXPECT_DOUBLE_EQ(held, snapshot.allocated);
  std::vector<std::string> owners;
  for (const SnapshotSite& site : snapshot.sites) owners.push_back(site.owner);
  for (const char* owner : {"forward", "backward", "optimizer", "parameters"}) {
    EXPECT_NE(std::ranges::find(owners, owner), owners.end()) << owner;
  }
}

}  // namespace
}  // namespace moonshard::viewer
