// Statistics of names, sums of ranges, and their text, against plain loops over all spans.
#include <algorithm>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/viewer/trace_builder.h"
#include "viewer/panels/trace_text.h"
#include "viewer/tracing/trace_index.h"
#include "viewer/tracing/trace_stats.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

TEST(TraceStats, OfANameEqualThoseOfItsLengths) {
  TraceBuilder builder;
  const size_t lane = builder.lane(0, "main"), other = builder.lane(0, "other");
  double start = 0;
  for (const double length : {4.0, 1.0, 2.0, 8.0}) {
    builder.span(lane, 0, start, length, "a").span(lane, 0, start + 10, 2, "b");
    start += 20;
  }
  builder.span(other, 0, 0, 16, "a");
  const TraceIndex index = build_trace_index(builder.trace());
  const NameStatistics found = name_statistics(index, 0);
  EXPECT_EQ(found.count, 5u);
  EXPECT_DOUBLE_EQ(found.total_us, 31);
  EXPECT_DOUBLE_EQ(found.mean_us, 6.2);
  EXPECT_DOUBLE_EQ(found.min_us, 1);
  EXPECT_DOUBLE_EQ(found.max_us, 16);
  EXPECT_DOUBLE_EQ(found.median_us, 4);
  EXPECT_DOUBLE_EQ(found.p95_us, 14.4);  // numpy.percentile([1, 2, 4, 8, 16], 95)
  EXPECT_DOUBLE_EQ(name_time_on_lane(index, 0, 0), 15);
  EXPECT_DOUBLE_EQ(name_time_on_lane(index, 0, 1), 16);
}

TEST(TraceStats, AHistogramHoldsEverySpan) {
  const Trace trace = make_big_trace(5000);
  const TraceIndex index = build_trace_index(trace);
  for (uint32_t name = 0; name < trace.names.size(); ++name) {
    const DurationHistogram histogram = duration_histogram(index, name, 40);
    EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0u),
              index.names[name].count);
    EXPECT_EQ(histogram.edges_us.size(), histogram.counts.size() + 1);
    EXPECT_TRUE(std::is_sorted(histogram.edges_us.begin(), histogram.edges_us.end()));
  }
}

TEST(TraceStats, AHistogramOfInstantsHasOneBin) {
  TraceBuilder builder;
  const size_t lane = builder.lane(0, "main");
  for (int i = 0; i < 5; ++i) builder.span(lane, 0, i, 0, "tick");
  const TraceIndex index = build_trace_index(builder.trace());
  EXPECT_EQ(duration_histogram(index, 0, 40).counts, std::vector<uint32_t>{5});
}

TEST(TraceStats, SumsOfARangeCountThePartInside) {
  const Trace trace = make_big_trace(4000);
  const TraceIndex index = build_trace_index(trace);
  for (const TimeWindow range : {TimeWindow{0, trace.length_us}, TimeWindow{1234.5, 4321.25},
                                 TimeWindow{2010, 2011}, TimeWindow{-5, -1}}) {
    std::map<uint32_t, std::pair<uint32_t, double>> expected;
    for (uint32_t r = 0; r < index.rows.size(); ++r) {
      const TraceRow& row = index.row(trace, r);
      for (uint32_t i = 0; i < row.size(); ++i) {
        const double inside =
            std::min(end_of(row, i), range.end_us) - std::max(row.start_us[i], range.start_us);
        if (inside <= 0) continue;
        ++expected[row.name[i]].first;
        expected[row.name[i]].second += inside;
      }
    }
    RangeSums sums(index, range);
    size_t steps = 1;
    while (!sums.step(trace, index, 3)) ++steps;
    EXPECT_GT(steps, 3u);  // a few groups a frame, not all at once
    EXPECT_EQ(sums.names().size(), expected.size());
    for (const RangeSums::Name& name : sums.names()) {
      EXPECT_EQ(name.count, expected[name.name].first) << trace.names[name.name];
      EXPECT_NEAR(name.total_us, expected[name.name].second, 1e-3) << trace.names[name.name];
    }
    EXPECT_TRUE(
        std::is_sorted(sums.names().begin(), sums.names().end(),
                       [](const auto& a, const auto& b) { return a.total_us > b.total_us; }));
  }
}

TEST(TraceStats, SumsOfARangeHaveBusyLanesAndExposedCommunication) {
  TraceBuilder builder;
  const size_t stream = builder.lane(0, "stream 7", true);
  const size_t network = builder.lane(0, "stream 20", true);
  builder.span(stream, 0, 0, 30, "gemm", "kernel");
  builder.span(network, 0, 20, 60, "ncclDevKernel_AllReduce", "kernel");
  const TraceIndex index = build_trace_index(builder.trace());
  const RangeSums sums(index, {25, 50});
  ASSERT_EQ(sums.lanes().size(), 2u);
  EXPECT_DOUBLE_EQ(sums.lanes()[0].busy_us, 5);
  EXPECT_DOUBLE_EQ(sums.lanes()[1].busy_us, 25);
  EXPECT_DOUBLE_EQ(sums.ranks()[0].communication_us, 25);
  EXPECT_DOUBLE_EQ(sums.ranks()[0].exposed_us, 20);
}

TEST(TraceText, TimesHaveTheUnitThatReadsBest) {
  EXPECT_EQ(format_time(0), "0");
  EXPECT_EQ(format_time(0.85), "850 ns");
  EXPECT_EQ(format_time(12.344), "12.34 us");
  EXPECT_EQ(format_time(999.999), "1 ms");
  EXPECT_EQ(format_time(1500), "1.5 ms");
  EXPECT_EQ(format_time(1.25e6), "1.25 s");
  EXPECT_EQ(format_time(-40), "-40 us");
  EXPECT_EQ(format_time(0.0004), "0.4 ns");
  EXPECT_EQ(format_share(1, 3), "33.3 %");
  EXPECT_EQ(format_share(1, 0), "-");
}

TEST(TraceText, TicksStandAtRoundTimesAndDiffer) {
  for (const TimeWindow window :
       {TimeWindow{0, 1e6}, TimeWindow{-300, 39000}, TimeWindow{5.001, 5.013},
        TimeWindow{123456.7, 123456.9}, TimeWindow{0, 3e-2}}) {
    const std::vector<RulerTick> ticks = ruler_ticks(window, 9);
    EXPECT_GE(ticks.size(), 3u) << window.start_us;
    EXPECT_LE(ticks.size(), 10u);
    for (size_t i = 1; i < ticks.size(); ++i) EXPECT_NE(ticks[i].text, ticks[i - 1].text);
  }
  EXPECT_EQ(ruler_ticks({0, 10000}, 5)[1].text, "2 ms");
  EXPECT_TRUE(ruler_ticks({1, 1}, 5).empty());
}

TEST(TraceText, CopiesAreTables) {
  TraceBuilder builder;
  const size_t lane = builder.lane(0, "main");
  builder.span(lane, 0, 0, 1500, "a|b\n").span(lane, 0, 2000, 500, "a|b\n");
  const Trace& trace = builder.trace();
  const TraceIndex index = build_trace_index(trace);
  const std::string markdown = statistics_text(trace, index, 0, TextStyle::Markdown);
  EXPECT_NE(markdown.find("|a\\|b "), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("2 ms|"), std::string::npos) << markdown;
  RangeSums sums(index, {0, trace.length_us});
  sums.step(trace, index, 100);
  const std::string plain = sums_text(trace, index, sums, TextStyle::Plain);
  EXPECT_NE(plain.find("from 0 to 2.5 ms: 2.5 ms"), std::string::npos) << plain;
  EXPECT_NE(plain.find("rank 0, main"), std::string::npos) << plain;
  EXPECT_NE(plain.find("80.0 %"), std::string::npos) << plain;
}

}  // namespace
}  // namespace moonshard::viewer
