// What is taken of a trace's events, and what of those that are odd, hostile or too many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "tests/runtime/tracing/trace_text.h"

namespace moonshard::tracing {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> names_of(const TraceData& trace) {
  std::vector<std::string> names;
  for (const TraceEvent& event : trace.events) names.push_back(trace.name_of(event));
  return names;
}

TEST(TraceEvents, AreOfTheKindThatTheirCategorySays) {
  TraceText text;
  text.kernel("gemm", 0, 1, 1, 7, "concurrent_kernel").kernel("zero", 2, 1, 2, 7, "gpu_memset");
  text.span("cuda_driver", "cuLaunch", "host", 1, 4, 1);
  text.span("python_function", "forward", "host", 1, 6, 1, "\"name\":\"x\"");
  for (const char* ignored : {"gpu_user_annotation", "overhead", "Trace", "ac2g", "fwdbwd"})
    text.span(ignored, ignored, "host", 1, 8, 1);
  const TraceData trace = text.read();
  EXPECT_THAT(names_of(trace), ElementsAre("gemm", "zero", "cuLaunch", "forward"));
  EXPECT_EQ(trace.events[0].kind, EventKind::Kernel);
  EXPECT_EQ(trace.events[1].kind, EventKind::Copy);
  EXPECT_EQ(trace.events[2].kind, EventKind::Call);
  EXPECT_EQ(trace.events[3].kind, EventKind::Op);
  EXPECT_EQ(trace.num_events, 9u);
}

TEST(TraceEvents, WithoutALengthAreLeftOutAndCounted) {
  TraceText text;
  text.op("good", 0, 1).op("negative", 2, -1).op("endless", 4, 1e15).op("far", 1e18, 1);
  const TraceData trace = text.read();
  EXPECT_THAT(names_of(trace), ElementsAre("good"));
  EXPECT_THAT(trace.notes, ElementsAre("2 events without a length were left out"));
}

TEST(TraceEvents, HaveTheCorrelationsThatFit) {
  TraceText text;
  text.kernel("gemm", 0, 1, 5).span("kernel", "huge", "gpu", 7, 2, 1, "\"correlation\":1e15");
  const auto wait = [&](const char* name, const char* arguments) {
    text.span("cuda_sync", name, "gpu", 7, 4, 1, arguments);
  };
  wait("Stream Wait Event",
       R"("correlation":3,"wait_on_cuda_event_record_corr_id":2,"stream":7,"wait_on_stream":1e15)");
  wait("Stream Wait Event", R"("correlation":3)");
  wait("Stream Wait Event", R"("wait_on_cuda_event_record_corr_id":2)");
  wait("Event Sync", R"("correlation":3,"wait_on_cuda_event_record_corr_id":2)");
  text.head(R"("moonshard":{"what":"llama","update_bytes":12,"more":[1]},)");
  const TraceData trace = text.read();
  EXPECT_EQ(trace.events[0].correlation, 5);
  EXPECT_EQ(trace.events[1].correlation, -1);
  ASSERT_EQ(trace.waits.size(), 1u);
  EXPECT_EQ(trace.waits[0].record_correlation, 2);
  EXPECT_EQ(trace.waits[0].stream, 7);
  EXPECT_EQ(trace.waits[0].awaited_stream, -1);
  EXPECT_EQ(trace.what, "llama");
  EXPECT_EQ(trace.update_bytes, 12);
}

// Arrows alone: a call, a kernel that it started, a kernel that names its call, one that nothing
// points to.
TEST(TraceEvents, AreJoinedByArrowsWhereTheyNameNoCall) {
  TraceText text;
  text.span("cuda_runtime", "launch", "host", 1, 0, 1).span("kernel", "gemm", "gpu", 7, 5, 1);
  text.kernel("known", 7, 1, 9).span("kernel", "alone", "gpu", 7, 9, 1);
  const auto arrow = [&](char phase, const char* id, const char* lane, int time) {
    text.raw(
        fmt::format(R"({{"ph":"{}","cat":"ac2g","id":{},{},"ts":{}}})", phase, id, lane, time));
  };
  const char* host = R"("pid":"host","tid":1)";
  const char* stream = R"("pid":"gpu","tid":7)";
  arrow('s', "4", host, 0);
  arrow('f', "4", stream, 5);
  arrow('f', "-2", stream, 9);
  arrow('f', "\"x\"", stream, 9);
  const TraceData trace = text.read();
  ASSERT_THAT(names_of(trace), ElementsAre("launch", "gemm", "known", "alone"));
  EXPECT_EQ(trace.events[0].correlation, 4);
  EXPECT_EQ(trace.events[1].correlation, 4);
  EXPECT_EQ(trace.events[2].correlation, 9);
  EXPECT_EQ(trace.events[3].correlation, -1);
}

TEST(TraceEvents, HaveTheirFieldsInAnyOrder) {
  TraceText text;
  text.span("cuda_runtime", "launch", "host", 1, 0, 1).span("kernel", "gemm", "gpu", 7, 5, 1);
  text.raw(R"({"cat":"ac2g","id":4,"ph":"s","pid":"host","tid":1,"ts":0})");
  EXPECT_EQ(text.read().events[0].correlation, 4);
}

TEST(TraceEvents, KeepWithinTheLimits) {
  const std::string events =
      R"([{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":""}},
      {"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"b"}},
      {"ph":"M","name":"thread_name","pid":1,"tid":3,"args":{"name":"c"}},
      {"ph":"M","name":"thread_name","pid":1,"tid":4,"args":{"name":"d"}},
      {"ph":"X","cat":"cpu_op","name":"first","pid":1,"tid":1,"ts":0,"dur":1},
      {"ph":"X","cat":"cpu_op","name":"other lane","pid":1,"tid":2,"ts":0,"dur":1},
      {"ph":"B","cat":"cpu_op","name":"opened","pid":1,"tid":1,"ts":5},
      {"ph":"E","pid":1,"tid":2,"ts":7},{"ph":"E","pid":1,"tid":1,"ts":8},{"ph":"E","pid":1,"tid":1,"ts":9},
      {"ph":"s","cat":"ac2g","id":1,"pid":1,"tid":2,"ts":0}])";
  TraceReadLimits limits;
  limits.max_lanes = 1;
  const TraceData trace = read_events(OpenFile(events, "trace.json"), {}, limits);
  EXPECT_THAT(names_of(trace), ElementsAre("first", "opened"));
  EXPECT_DOUBLE_EQ(trace.events[1].length_us, 3);
  ASSERT_EQ(trace.lanes.size(), 1u);
  EXPECT_EQ(trace.lanes[0].name, "thread 1") << "an empty label says nothing";
  limits.max_events = 10;
  EXPECT_THAT(
      [&] { read_events(OpenFile(events, "trace.json"), {}, limits); },
      ThrowsMessage<IoError>(HasSubstr("trace.json: expected at most 10 events, got more")));
}

}  // namespace
}  // namespace moonshard::tracing
