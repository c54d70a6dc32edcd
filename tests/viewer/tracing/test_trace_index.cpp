// The trace's index: groups by name, busy time, exposed communication, what it refuses.
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "tests/viewer/trace_builder.h"
#include "viewer/tracing/trace_index.h"

namespace moonshard::viewer {
namespace {

uint32_t name_of(const Trace& trace, const std::string& text) {
  const auto place = std::find(trace.names.begin(), trace.names.end(), text);
  EXPECT_NE(place, trace.names.end()) << text;
  return static_cast<uint32_t>(place - trace.names.begin());
}

TEST(TraceIndex, EverySpanStandsOnceUnderItsNameInOrderOfTime) {
  const Trace trace = make_big_trace(5000);
  const TraceIndex index = build_trace_index(trace);
  uint64_t num_spans = 0;
  for (uint32_t name = 0; name < trace.names.size(); ++name) {
    for (uint32_t g = index.name_group[name]; g < index.name_group[name + 1]; ++g) {
      const TraceRow& row = index.row(trace, index.groups[g].row);
      for (uint32_t k = index.groups[g].first_span; k < index.groups[g + 1].first_span; ++k) {
        EXPECT_EQ(row.name[index.group_spans[k]], name);
        if (k > index.groups[g].first_span) {
          EXPECT_GT(index.group_spans[k], index.group_spans[k - 1]);
        }
        ++num_spans;
      }
    }
    EXPECT_TRUE(std::is_sorted(index.durations_us.begin() + index.first_span(name),
                               index.durations_us.begin() + index.last_span(name)));
  }
  EXPECT_EQ(num_spans, trace.num_events);
}

TEST(TraceIndex, SelfTimeLeavesOutTheRowBelowOnly) {
  TraceBuilder builder;
  const size_t lane = builder.lane(0, "main");
  builder.span(lane, 0, 0, 100, "outer")
      .span(lane, 1, 10, 40, "middle")
      .span(lane, 1, 60, 20, "middle");
  builder.span(lane, 2, 15, 30, "inner");
  const Trace trace = builder.take();
  const TraceIndex index = build_trace_index(trace);
  EXPECT_DOUBLE_EQ(index.names[name_of(trace, "outer")].self_us, 40);
  EXPECT_DOUBLE_EQ(index.names[name_of(trace, "middle")].self_us, 30);
  EXPECT_DOUBLE_EQ(index.names[name_of(trace, "inner")].self_us, 30);
  EXPECT_DOUBLE_EQ(index.names[name_of(trace, "middle")].total_us, 60);
}

TEST(TraceIndex, ALaneIsBusyWhereAnyRowIs) {
  TraceBuilder builder;
  const size_t lane = builder.lane(0, "main");
  builder.span(lane, 0, 0, 10, "a").span(lane, 0, 30, 10, "a");
  builder.span(lane, 1, 2, 3, "b").span(lane, 1, 35, 15, "b");  // the second sticks out
  const TraceIndex index = build_trace_index(builder.trace());
  EXPECT_DOUBLE_EQ(index.busy[0].total_us(), 30);
  EXPECT_DOUBLE_EQ(index.busy[0].covered_us({5, 35}), 10);
  EXPECT_DOUBLE_EQ(index.busy[0].covered_us({10, 30}), 0);
  EXPECT_DOUBLE_EQ(index.busy[0].covered_us({-100, 100}), 30);
}

TEST(TraceIndex, CommunicationIsExposedWhereNoOtherStreamComputes) {
  TraceBuilder builder;
  const size_t host = builder.lane(0, "main");
  const size_t stream = builder.lane(0, "stream 7", true);
  const size_t network = builder.lane(0, "stream 20", true);
  builder.span(host, 0, 0, 100, "aten::mm");  // a host thread hides nothing
  builder.span(stream, 0, 0, 30, "gemm", "kernel").span(stream, 0, 60, 30, "copy", "gpu_memcpy");
  builder.span(network, 0, 20, 60, "ncclDevKernel_AllReduce", "kernel");
  const TraceIndex index = build_trace_index(builder.trace());
  ASSERT_EQ(index.ranks.size(), 1u);
  EXPECT_DOUBLE_EQ(index.ranks[0].communication.total_us(), 60);
  EXPECT_DOUBLE_EQ(index.ranks[0].exposed.total_us(), 50);
  EXPECT_DOUBLE_EQ(index.ranks[0].exposed.covered_us({0, 40}), 10);
}

TEST(TraceIndex, WhatALaneComputesInsideItsOwnCollectiveHidesNothing) {
  TraceBuilder builder;
  const size_t main = builder.lane(3, "main");
  const size_t gloo = builder.lane(3, "gloo");
  builder.span(main, 0, 0, 100, "backward", "user_annotation").span(main, 1, 0, 10, "aten::mm");
  builder.span(gloo, 0, 0, 50, "gloo:all_reduce", "user_annotation")
      .span(gloo, 1, 20, 10, "aten::copy_");
  const TraceIndex index = build_trace_index(builder.trace());
  EXPECT_EQ(index.ranks[0].rank, 3);
  EXPECT_DOUBLE_EQ(index.ranks[0].exposed.total_us(), 40);
}

TEST(TraceIndex, CollectivesAreKnownByName) {
  for (const char* name : {"ncclDevKernel_AllGather_RING_LL", "gloo:all_gather", "c10d::allreduce_",
                           "nccl:reduce_scatter", "record_param_comms"}) {
    EXPECT_TRUE(is_communication(name)) << name;
  }
  for (const char* name : {"aten::all_gather_like", "reduce_kernel", "reduce", "forward", ""}) {
    EXPECT_FALSE(is_communication(name)) << name;
  }
}

TEST(TraceIndex, LanesOfOneRankStandTogether) {
  TraceBuilder builder;
  builder.lane(0, "a"), builder.lane(0, "b"), builder.lane(1, "a");
  const TraceIndex index = build_trace_index(builder.trace());
  ASSERT_EQ(index.ranks.size(), 2u);
  EXPECT_EQ(index.ranks[0].num_lanes, 2u);
  EXPECT_EQ(index.ranks[1].first_lane, 2u);
  EXPECT_EQ(index.lane_rank, (std::vector<uint32_t>{0, 0, 1}));
}

TEST(TraceIndex, AnEmptyTraceHasAnIndex) {
  const TraceIndex index = build_trace_index(Trace{});
  EXPECT_TRUE(index.rows.empty());
  EXPECT_TRUE(index.ranks.empty());
}

TEST(TraceIndex, RefusesWhatBreaksThePromisesOfATrace) {
  TraceBuilder builder;
  const size_t lane = builder.lane(0, "main");
  builder.span(lane, 0, 0, 1, "a").span(lane, 0, 5, 1, "a");
  const Trace good = builder.take();
  const auto refuses = [&](auto&& spoil) {
    Trace bad = good;
    spoil(bad.lanes[0].rows[0]);
    EXPECT_THROW(build_trace_index(bad), UsageError);
  };
  refuses([](TraceRow& row) { row.start_us[1] = -1; });
  refuses([](TraceRow& row) { row.start_us[0] = std::numeric_limits<double>::quiet_NaN(); });
  refuses([](TraceRow& row) { row.length_us[1] = -1; });
  refuses([](TraceRow& row) { row.name[0] = 7; });
  refuses([](TraceRow& row) { row.category[0] = 7; });
  refuses([](TraceRow& row) { row.length_us.pop_back(); });
}

}  // namespace
}  // namespace moonshard::viewer
