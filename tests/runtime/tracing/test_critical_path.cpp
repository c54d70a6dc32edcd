// Critical paths of traces in which one knows what waited for what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "tests/runtime/tracing/trace_text.h"

namespace moonshard::tracing {
namespace {

// Two kernels back to back; the host launches both early and waits at the end.
TraceText device_bound() {
  TraceText text;
  text.range("data", 0, 10).range("forward", 10, 90);
  text.call("cudaLaunchKernel", 12, 4, 1).call("cudaLaunchKernel", 18, 4, 2);
  text.kernel("gemm", 20, 50, 1).kernel("relu", 71, 20, 2);
  text.call("cudaDeviceSynchronize", 24, 71, 3);
  return text;
}

TEST(CriticalPath, OfADeviceBoundStepIsItsKernels) {
  const CriticalPath path = path_of(device_bound().read());
  EXPECT_DOUBLE_EQ(path.length_us(), 100);
  EXPECT_DOUBLE_EQ(time_of(path.names, "gemm"), 50);
  EXPECT_DOUBLE_EQ(time_of(path.names, "relu"), 20);
  EXPECT_DOUBLE_EQ(time_of(path.names, "(between kernels)"), 1);
  EXPECT_DOUBLE_EQ(time_of(path.kinds, "kernel"), 70);
  EXPECT_DOUBLE_EQ(time_of(path.phases, "forward"), 70 + 1 + 8 + 2 + 4 + 5);
  for (const auto* parts : {&path.kinds, &path.phases, &path.layers, &path.names})
    EXPECT_DOUBLE_EQ(sum_of(*parts), 100);
}

TEST(CriticalPath, HasNoHoles) {
  const CriticalPath path = path_of(device_bound().read());
  double at = path.begin_us;
  for (const PathSegment& segment : path.segments) {
    EXPECT_DOUBLE_EQ(segment.start_us, at);
    at = segment.end_us;
  }
  EXPECT_DOUBLE_EQ(at, path.end_us);
}

TEST(CriticalPath, OfAStepThatWaitsForTheHostIsTheHost) {
  TraceText text;
  text.range("forward", 0, 300);
  text.op("aten::slow", 5, 190).call("cudaLaunchKernel", 200, 4, 1).kernel("tiny", 206, 3, 1);
  text.op("aten::more", 210, 80);
  const CriticalPath path = path_of(text.read());
  EXPECT_GT(time_of(path.names, "aten::slow"), 180);
  EXPECT_DOUBLE_EQ(time_of(path.names, "tiny"), 0);
}

// Gradients are sent on another stream, which the update waits for.
TraceText two_streams(const std::string& waits) {
  TraceText text;
  text.range("backward", 0, 400).range("update", 400, 200);
  text.call("cudaLaunchKernel", 10, 2, 1).kernel("gemm", 16, 100, 1);
  text.call("cudaEventRecord", 14, 1, 2).call("cudaStreamWaitEvent", 16, 1, 3);
  text.call("ncclLaunch", 18, 2, 4).kernel("ncclDevKernel_AllReduce", 120, 300, 4, 13);
  text.call("cudaEventRecord", 22, 1, 5).call("cudaStreamWaitEvent", 24, 1, 6);
  text.call("cudaLaunchKernel", 26, 2, 7).kernel("adam", 424, 50, 7);
  text.call("cudaDeviceSynchronize", 30, 450, 8);
  if (!waits.empty()) text.raw(waits);
  return text;
}

TEST(CriticalPath, FollowsStreamsThatWaitForEachOther) {
  const CriticalPath path = path_of(two_streams("").read());
  EXPECT_DOUBLE_EQ(time_of(path.kinds, "communication"), 300);
  EXPECT_DOUBLE_EQ(time_of(path.names, "gemm"), 100);
  EXPECT_DOUBLE_EQ(time_of(path.names, "adam"), 50);
}

TEST(CriticalPath, TakesWaitsFromTheTraceWhereItNamesThem) {
  const TraceData trace =
      two_streams(
          R"({"ph":"X","cat":"cuda_sync","name":"Stream Wait Event","pid":"gpu","tid":7,"ts":24,"dur":1,
              "args":{"stream":7,"correlation":6,"wait_on_stream":13,"wait_on_cuda_event_record_corr_id":5}})")
          .read();
  ASSERT_EQ(trace.waits.size(), 1u);
  const HostLabels labels = label_hosts(trace);
  EXPECT_TRUE(build_graph(trace, labels, find_steps(trace).front()).waits_are_known);
  EXPECT_DOUBLE_EQ(time_of(path_of(trace).kinds, "communication"), 300);
}

// One launch, many kernels on two streams, in the order of stream and time.
TEST(CriticalPath, OfACudaGraphFollowsItsStreams) {
  TraceText text;
  text.range("graph", 0, 200).call("cudaGraphLaunch", 5, 10, 1);
  text.kernel("a", 20, 30, 1).kernel("b", 51, 40, 1).kernel("side", 51, 60, 1, 9);
  text.kernel("join", 113, 20, 1).call("cudaStreamSynchronize", 16, 120, 2);
  const TraceData trace = text.read();
  const HostLabels labels = label_hosts(trace);
  EXPECT_EQ(build_graph(trace, labels, find_steps(trace).front()).num_graph_kernels, 4u);
  const CriticalPath path = path_of(trace);
  EXPECT_DOUBLE_EQ(time_of(path.names, "a"), 30);
  EXPECT_DOUBLE_EQ(time_of(path.names, "side"), 60);
  EXPECT_DOUBLE_EQ(time_of(path.names, "b"), 0);
  EXPECT_DOUBLE_EQ(time_of(path.phases, "graph"), path.length_us());
}

// A kernel that fills the device lets a small one in when its last blocks run out.
TEST(CriticalPath, GoesThroughTheKernelThatHadTheDevice) {
  TraceText text;
  text.range("backward", 0, 1100);
  text.call("cudaLaunchKernel", 2, 2, 1).kernel("big", 10, 1000, 1);
  text.call("cudaMemcpyAsync", 6, 2, 2).kernel("copy", 960, 80, 2, 13, "gpu_memcpy");
  text.call("cudaDeviceSynchronize", 10, 1035, 3);
  const CriticalPath path = path_of(text.read());
  EXPECT_DOUBLE_EQ(time_of(path.names, "big"), 950);
  EXPECT_DOUBLE_EQ(time_of(path.kinds, "memcpy"), 80);
}

// A backward pass runs on a thread of its own while the main thread waits.
TEST(CriticalPath, GoesOverToTheThreadThatWorks) {
  TraceText text;
  text.range("backward", 0, 1000).op("aten::sum", 10, 90);
  text.op("autograd::engine::evaluate_function: MmBackward0", 120, 700, 2);
  text.op("aten::mm", 130, 600, 2).op("aten::add_", 850, 140);
  const CriticalPath path = path_of(text.read());
  EXPECT_DOUBLE_EQ(time_of(path.names, "aten::mm"), 600);
  EXPECT_DOUBLE_EQ(time_of(path.phases, "backward"), 1000);
}

TEST(CriticalPath, NamesLayersOfRanges) {
  TraceText text;
  text.range("forward", 0, 100).range("model.layers.3.mlp", 10, 60).op("aten::mm", 12, 50);
  const CriticalPath path = path_of(text.read());
  EXPECT_DOUBLE_EQ(time_of(path.layers, "model.layers.3.mlp"), 60);
}

TEST(CriticalPath, OfPyTorchsTracesIsByStep) {
  TraceText text;
  text.range("ProfilerStep#4", 0, 100).range("ProfilerStep#5", 100, 150);
  text.op("aten::linear", 10, 40).op("autograd::engine::evaluate_function: AddmmBackward0", 60, 20);
  text.range("Optimizer.step#AdamW.step", 200, 40).op("aten::_foreach_add_", 205, 30);
  const TraceData trace = text.read();
  ASSERT_EQ(find_steps(trace).size(), 2u);
  EXPECT_DOUBLE_EQ(path_of(trace, 1).length_us(), 150);
  EXPECT_DOUBLE_EQ(time_of(path_of(trace, 1).phases, "optimizer"), 40);
  EXPECT_DOUBLE_EQ(time_of(path_of(trace, 0).phases, "backward"), 20);
}

TEST(CriticalPath, FindsCallsByArrowsWhereNothingElseNamesThem) {
  TraceText text;
  text.range("forward", 0, 100);
  text.span("cuda_runtime", "cudaLaunchKernel", "host", 1, 10, 4);
  text.span("kernel", "gemm", "gpu", 7, 20, 50);
  text.raw(R"({"ph":"s","id":5,"pid":"host","tid":1,"ts":10,"cat":"ac2g","name":"ac2g"})");
  text.raw(R"({"ph":"f","id":5,"pid":"gpu","tid":7,"ts":20,"cat":"ac2g","name":"ac2g"})");
  const TraceData trace = text.read();
  const HostLabels labels = label_hosts(trace);
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    if (trace.events[i].kind == EventKind::Kernel) {
      EXPECT_NE(labels.call_of[i], kNone);
    }
  }
}

TEST(CriticalPath, OfACompressedTraceOfAnH200IsWhole) {
  const TraceData trace = read_events(std::string(MOONSHARD_SOURCE_DIR) +
                                      "/examples/results/bench_gpu/points/9e5caf5727bf31b7/"
                                      "trace.rank0.json.gz");
  EXPECT_EQ(trace.device, "NVIDIA H200");
  const CriticalPath path = path_of(trace);
  EXPECT_NEAR(sum_of(path.kinds), path.length_us(), 0.01);
  EXPECT_GT(time_of(path.kinds, "kernel"), 0.9 * path.length_us());
}

// A plan's simulated step has streams and a ruler of phases, and no host.
TEST(CriticalPath, OfASimulatedStepIsThatOfItsStreams) {
  TraceText text;
  text.head("\"modelled\":true,").range("forward (modelled)", 0, 300, 0);
  text.span("modelled", "all_gather (modelled)", "host", 3, 0, 100);
  text.span("modelled", "forward (modelled)", "host", 2, 101, 199);
  const CriticalPath path = path_of(text.read());
  EXPECT_DOUBLE_EQ(time_of(path.kinds, "communication"), 100);
  EXPECT_DOUBLE_EQ(time_of(path.names, "forward (modelled)"), 199);
  EXPECT_DOUBLE_EQ(time_of(path.phases, "forward"), 300);
}

// Work belongs to the phase that its name says, in words, even within another's time; collectives,
// copies and what else has no phase in its name to the one of their rank in which they begin.
TEST(CriticalPath, OfASimulatedStepHasThePhasesOfItsRuler) {
  TraceText text;
  text.head("\"modelled\":true,");
  text.range("backward (modelled)", 0, 100, 0).range("clipped_sum (modelled)", 100, 170, 0);
  const auto span = [&](const char* name, double start, double length, int lane) {
    text.span("modelled", std::string(name) + " (modelled)", "host", lane, start, length);
  };
  span("backward", 0, 90, 2);
  span("gather", 90, 10, 2);
  span("clipped sum", 100, 40, 2);
  span("update", 140, 30, 2);
  span("second backward", 170, 20, 2);
  span("reduce_scatter", 190, 50, 3);
  span("to host", 240, 30, 4);
  // Another rank, whose phases are others.
  text.span("user_annotation", "forward (modelled)", "rank 1", 0, 0, 270);
  text.span("modelled", "all_gather (modelled)", "rank 1", 3, 0, 5);
  const TraceData trace = text.read();
  const CriticalPath path = path_of(trace);
  EXPECT_DOUBLE_EQ(time_of(path.phases, "backward"), 100);
  EXPECT_DOUBLE_EQ(time_of(path.phases, "clipped_sum"), 40 + 50 + 30);
  EXPECT_DOUBLE_EQ(time_of(path.phases, "update"), 30);
  EXPECT_DOUBLE_EQ(time_of(path.phases, "second_backward"), 20);
  EXPECT_DOUBLE_EQ(time_of(path.phases, "-"), 0);
  EXPECT_DOUBLE_EQ(time_of(path.kinds, "communication"), 50);
  EXPECT_DOUBLE_EQ(time_of(path.kinds, "memcpy"), 30);
  const HostLabels labels = label_hosts(trace);
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    if (trace.name_of(trace.events[i]) == "all_gather (modelled)") {
      EXPECT_EQ(labels.phases[labels.of(i).phase], "forward");
    }
  }
}

// Milliseconds times a thousand do not meet to the last bit: that is no gap.
TEST(CriticalPath, OfASimulatedStepHasNoGapsOfRounding) {
  TraceText text;
  text.head("\"modelled\":true,").range("forward (modelled)", 0, 300, 0);
  text.span("modelled", "forward (modelled)", "host", 2, 0, 100);
  text.span("modelled", "forward (modelled)", "host", 2, 100 + 1e-10, 200 - 1e-10);
  const TraceData trace = text.read();
  EXPECT_EQ(path_of(trace).kinds.size(), 1u);
  EXPECT_EQ(forecast(trace, RuleSubject::Phase, "forward", 0.5).kinds.size(), 1u);
}

// Copies to the host and from it go on at a time, in one lane: either follows its own.
TEST(CriticalPath, OfASimulatedStepFollowsCopiesOfEitherDirection) {
  TraceText text;
  text.head("\"modelled\":true,").range("forward (modelled)", 0, 1000, 0);
  text.span("modelled", "forward (modelled)", "host", 2, 0, 400);
  text.span("modelled", "to host (modelled)", "host", 4, 400, 300);
  text.span("modelled", "to device (modelled)", "host", 4, 400, 299);
  text.span("modelled", "to host (modelled)", "host", 4, 700, 300);
  const CriticalPath path = path_of(text.read());
  EXPECT_DOUBLE_EQ(time_of(path.names, "forward (modelled)"), 400);
  EXPECT_DOUBLE_EQ(time_of(path.names, "to host (modelled)"), 600);
}

// A plan has a lane for what the host computes of states that live there.
TEST(CriticalPath, OfASimulatedStepHasItsHostsWork) {
  TraceText text;
  text.head("\"modelled\":true,").range("update (modelled)", 0, 300, 0);
  text.raw(
      R"json({"ph":"M","name":"thread_name","pid":"host","tid":1,
              "args":{"name":"host (modelled)"}})json");
  text.span("modelled", "update (modelled)", "host", 1, 0, 300);
  EXPECT_DOUBLE_EQ(time_of(path_of(text.read()).kinds, "host"), 300);
}

TEST(TraceReader, RefusesWhatIsNoTrace) {
  const TemporaryFolder folder;
  const auto problem = [&](const std::string& text) -> std::string {
    std::ofstream(folder.path() / "trace.json") << text;
    try {
      read_events(folder.path() / "trace.json");
    } catch (const IoError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(problem("{\"other\": 1}"), testing::HasSubstr("no traceEvents"));
  EXPECT_THAT(problem("{\"traceEvents\": []}"), testing::HasSubstr("expected a trace with spans"));
  EXPECT_THAT(problem("{\"traceEvents\": [{\"ph\":"), testing::HasSubstr("trace.json"));
}

}  // namespace
}  // namespace moonshard::tracing
