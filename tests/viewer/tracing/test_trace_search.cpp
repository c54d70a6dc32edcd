// Search in a trace against looking at every span.
#include <algorithm>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/viewer/trace_builder.h"
#include "viewer/tracing/trace_search.h"

namespace moonshard::viewer {
namespace {

std::vector<SpanRef> all_hits(const Trace& trace, const TraceIndex& index,
                              const std::string& part) {
  std::vector<SpanRef> hits;
  for (uint32_t r = 0; r < index.rows.size(); ++r) {
    const TraceRow& row = index.row(trace, r);
    for (uint32_t i = 0; i < row.size(); ++i) {
      if (trace.names[row.name[i]].find(part) != std::string::npos) hits.push_back({r, i});
    }
  }
  std::sort(hits.begin(), hits.end(), [&](SpanRef a, SpanRef b) {
    return std::tuple(index.row(trace, a.row).start_us[a.index], a.row, a.index) <
           std::tuple(index.row(trace, b.row).start_us[b.index], b.row, b.index);
  });
  return hits;
}

TEST(TraceSearch, WalksThroughAllHitsInOrderOfTimeBothWays) {
  const Trace trace = make_big_trace(3000);
  const TraceIndex index = build_trace_index(trace);
  for (const char* part : {"mm", "aten::", "nccl", "e", "forward"}) {
    const std::vector<SpanRef> hits = all_hits(trace, index, part);
    const TraceSearch search(trace, index, part);
    ASSERT_EQ(search.num_hits(), hits.size()) << part;
    std::optional<SpanRef> forward, backward;
    for (size_t i = 0; i < hits.size(); ++i) {
      forward = search.next(trace, index, forward);
      ASSERT_EQ(forward, hits[i]) << part << " " << i;
      ASSERT_EQ(search.place_of(trace, index, *forward), i);
      backward = search.previous(trace, index, backward);
      ASSERT_EQ(backward, hits[hits.size() - 1 - i]) << part << " " << i;
    }
    EXPECT_EQ(search.next(trace, index, forward), std::nullopt);
    EXPECT_EQ(search.previous(trace, index, backward), std::nullopt);
  }
}

TEST(TraceSearch, CaseDoesNotMatterAndLanesCountTheirOwn) {
  const Trace trace = make_big_trace(3000);
  const TraceIndex index = build_trace_index(trace);
  const TraceSearch search(trace, index, "NCCLdev");
  EXPECT_GT(search.num_hits(), 0u);
  uint64_t sum = 0;
  for (uint32_t lane = 0; lane < trace.lanes.size(); ++lane) {
    const uint64_t hits = search.num_hits_in_lane(lane);
    EXPECT_EQ(hits > 0, trace.lanes[lane].thread == "stream 20");
    sum += hits;
  }
  EXPECT_EQ(sum, search.num_hits());
}

TEST(TraceSearch, ABoxKnowsWhetherAHitIsInIt) {
  const Trace trace = make_big_trace(3000);
  const TraceIndex index = build_trace_index(trace);
  const TraceSearch search(trace, index, "mm");
  for (uint32_t r = 0; r < index.rows.size(); ++r) {
    const TraceRow& row = index.row(trace, r);
    for (uint32_t first = 0; first < row.size(); first += 3) {
      const uint32_t count =
          std::min<uint32_t>(first % 130 + 1, static_cast<uint32_t>(row.size()) - first);
      bool any = false;
      for (uint32_t i = first; i < first + count; ++i) any |= search.matches_name(row.name[i]);
      ASSERT_EQ(search.any_in(r, first, count), any) << r << " " << first << " " << count;
    }
  }
}

TEST(TraceSearch, StartsFromWhatIsOnTheScreen) {
  const Trace trace = make_big_trace(3000);
  const TraceIndex index = build_trace_index(trace);
  const TraceSearch search(trace, index, "forward");
  const auto hit = search.first_from(trace, index, 2000);
  ASSERT_TRUE(hit);
  EXPECT_GE(index.row(trace, hit->row).start_us[hit->index], 2000);
  EXPECT_EQ(search.first_from(trace, index, trace.length_us + 1), std::nullopt);
}

TEST(TraceSearch, NothingIsFoundByAnEmptyOrAnUnknownText) {
  const Trace trace = make_big_trace(1000);
  const TraceIndex index = build_trace_index(trace);
  const TraceSearch none(trace, index, ""), unknown(trace, index, "%n\x01");
  EXPECT_FALSE(none.active());
  EXPECT_TRUE(unknown.active());
  EXPECT_EQ(unknown.num_hits(), 0u);
  EXPECT_EQ(unknown.next(trace, index, std::nullopt), std::nullopt);
}

}  // namespace
}  // namespace moonshard::viewer
