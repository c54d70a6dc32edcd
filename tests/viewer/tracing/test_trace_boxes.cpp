// What is drawn of a row: every span is in some box, and the work depends on the pixels.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/viewer/trace_builder.h"
#include "viewer/tracing/trace_boxes.h"
#include "viewer/tracing/trace_index.h"

namespace moonshard::viewer {
namespace {

TEST(TraceBoxes, HoldEverySpanOfTheWindowOnceAndInOrder) {
  const Trace trace = make_big_trace(20000);
  const TraceIndex index = build_trace_index(trace);
  std::vector<TraceBox> boxes;
  for (const double zoom : {1.0, 3.0, 40.0, 900.0}) {
    const double start = trace.length_us * 0.37;
    const TimeWindow window{start, start + trace.length_us * 0.6 / zoom};
    for (uint32_t r = 0; r < index.rows.size(); ++r) {
      const TraceRow& row = index.row(trace, r);
      find_boxes(row, {window, 800}, 2, boxes);
      size_t next = 0;
      while (next < row.size() && row.start_us[next] < window.start_us &&
             end_of(row, next) <= window.start_us) {
        ++next;
      }
      float last_x = 0;
      for (const TraceBox& box : boxes) {
        EXPECT_EQ(box.first, next);
        EXPECT_GE(box.shown, box.first);
        EXPECT_LT(box.shown, box.first + box.count);
        EXPECT_GE(box.x0, last_x - 1e-3f);
        EXPECT_LE(box.x1, 800);
        last_x = box.x0;
        next = box.first + box.count;
      }
      EXPECT_TRUE(next == row.size() || row.start_us[next] >= window.end_us);
    }
  }
}

TEST(TraceBoxes, AWideSpanAmongNarrowOnesHasItsOwnBox) {
  TraceBuilder builder;
  const size_t lane = builder.lane(0, "main");
  builder.span(lane, 0, 0.1, 0.1, "a").span(lane, 0, 0.3, 0.1, "a").span(lane, 0, 0.5, 30, "wide");
  builder.span(lane, 0, 40, 0, "instant");
  std::vector<TraceBox> boxes;
  find_boxes(builder.trace().lanes[0].rows[0], {{0, 100}, 100}, 2, boxes);
  ASSERT_EQ(boxes.size(), 3u);
  EXPECT_EQ(boxes[0].count, 2u);
  EXPECT_NEAR(boxes[0].fill, 0.1f, 1e-5f);  // 0.2 of a stretch of 2 us
  EXPECT_EQ(boxes[1].count, 1u);
  EXPECT_FLOAT_EQ(boxes[1].x0, 0.5f);
  EXPECT_FLOAT_EQ(boxes[1].x1, 30.5f);
  EXPECT_FLOAT_EQ(boxes[2].x0, boxes[2].x1);
}

TEST(TraceBoxes, JoinedBoxesStayTheSameWhilePanning) {
  const Trace trace = make_big_trace(20000);
  const TraceRow& row = trace.lanes[0].rows[2];
  const double length = trace.length_us / 2;
  std::vector<TraceBox> before, after;
  find_boxes(row, {{1000, 1000 + length}, 500}, 2, before);
  find_boxes(row, {{1337, 1337 + length}, 500}, 2, after);
  size_t same = 0;
  for (const TraceBox& box : after) {
    same += std::any_of(before.begin(), before.end(), [&](const TraceBox& old) {
      return old.first == box.first && old.count == box.count && old.shown == box.shown;
    });
  }
  EXPECT_GE(same + 4, after.size());  // all but what came in or was cut at the edges
}

TEST(TraceBoxes, WorkGrowsWithThePixelsNotWithTheTrace) {
  const auto looked = [](uint64_t num_events, double share) {
    const Trace trace = make_big_trace(num_events);
    const TraceIndex index = build_trace_index(trace);
    std::vector<TraceBox> boxes;
    size_t sum = 0;
    for (uint32_t r = 0; r < index.rows.size(); ++r) {
      const TimeScale scale{{0, trace.length_us * share}, 1000};
      sum += find_boxes(index.row(trace, r), scale, 2, boxes);
      EXPECT_LE(boxes.size(), 2 * 1000 / 2 + 2);
    }
    return sum;
  };
  // Eight times the events: only the steps of the bisection grow, three per stretch of two pixels.
  for (const double share : {1.0, 0.1}) {
    EXPECT_LT(looked(800'000, share), looked(100'000, share) + 14 * 500 * 8);
  }
  EXPECT_LT(looked(800'000, 1.0), 800'000u / 4);
}

TEST(TraceBoxes, OddWindowsDrawNothing) {
  const Trace trace = make_big_trace(1000);
  std::vector<TraceBox> boxes(3);
  for (const TimeWindow window : {TimeWindow{5, 5}, TimeWindow{9, 3}, TimeWindow{NAN, 1}}) {
    find_boxes(trace.lanes[0].rows[0], {window, 100}, 2, boxes);
    EXPECT_TRUE(boxes.empty());
  }
  find_boxes(TraceRow{}, {{0, 1}, 100}, 2, boxes);
  EXPECT_TRUE(boxes.empty());
}

TEST(TraceBoxes, TheSpanUnderAPointIsTheOneThatCoversIt) {
  TraceBuilder builder;
  const size_t lane = builder.lane(0, "main");
  builder.span(lane, 0, 10, 5, "a").span(lane, 0, 20, 0, "tick").span(lane, 0, 30, 100, "b");
  const TraceRow& row = builder.trace().lanes[0].rows[0];
  EXPECT_EQ(span_at(row, 12, 0), 0u);
  EXPECT_EQ(span_at(row, 17, 1), std::nullopt);
  EXPECT_EQ(span_at(row, 16, 1.5), 0u);
  EXPECT_EQ(span_at(row, 20.5, 1), 1u);
  EXPECT_EQ(span_at(row, 129, 0), 2u);
  EXPECT_EQ(span_at(row, 29.5, 1), 2u);
  EXPECT_EQ(span_at(TraceRow{}, 1, 1), std::nullopt);
}

TEST(TraceBoxes, ACountersRangeIsThatOfAllItsSamples) {
  TraceBuilder builder;
  builder.lane(0, "main");
  PlainRandom random;
  for (int i = 0; i < 3000; ++i) builder.sample("c", 10 + i, i == 1717 ? 9 : random());
  const Trace& trace = builder.trace();
  const TraceIndex index = build_trace_index(trace);
  const TraceCounter& counter = trace.counters[0];
  for (int k = 0; k < 300; ++k) {
    const double start = 3100 * random(), end = start + 2000 * random() * random() + 0.01;
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < counter.value.size(); ++i) {
      const double until = i + 1 < counter.value.size() ? counter.time_us[i + 1] : INFINITY;
      if (counter.time_us[i] >= end || until <= start) continue;
      low = std::min(low, counter.value[i]);
      high = std::max(high, counter.value[i]);
    }
    const auto found = counter_range(counter, index.counters[0], {start, end});
    ASSERT_EQ(found.has_value(), high >= low) << start << " " << end;
    if (!found) continue;
    EXPECT_EQ(found->low, low);
    EXPECT_EQ(found->high, high);
  }
  EXPECT_EQ(index.counters[0].high, 9);
}

}  // namespace
}  // namespace moonshard::viewer
