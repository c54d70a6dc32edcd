// Predictions from the graph of a step, and differences of two traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/tracing/stand_ins.h"
#include "runtime/tracing/trace_diff.h"
#include "tests/runtime/tracing/trace_text.h"

namespace moonshard::tracing {
namespace {

// A private step of one pass: norms in backward, factors, sums, an update with noise.
TraceText private_step(bool with_second_pass = false, const char* sums = "sum_gemm") {
  TraceText text;
  text.head(R"("moonshard":{"what":"tiny bookkeeping","update_bytes":40000},
               "deviceProperties":[{"name":"NVIDIA H200"}],)");
  text.range("forward", 0, 20).range("backward", 20, 40).range("clip_factors", 60, 10);
  text.range(with_second_pass ? "second_backward" : "clipped_sum", 70, 20).range("update", 90, 910);
  int correlation = 0;
  const auto launch = [&](double at, const std::string& name, double start, double length) {
    ++correlation;
    text.call("cudaLaunchKernel", at, 2, correlation).kernel(name, start, length, correlation);
  };
  launch(5, "forward_gemm", 10, 100);
  launch(25, "backward_gemm", 110, 200);
  text.range("norms model.layers.0", 30, 15);
  launch(32, "flash_norm", 310, 150);
  text.range("gradients model.layers.0", 36, 6);
  launch(38, "kept_gradients", 460, 90);
  launch(62, "factors", 550, 10);
  launch(72, sums, 560, 100);
  launch(92, "fused_update", 660, 80);
  text.call("cudaDeviceSynchronize", 96, 646, 100);
  text.op("aten::item", 750, 240);
  return text;
}

std::string problem_without_norms(const TraceText& text) {
  WhatIf changes;
  changes.norms = true;
  try {
    forecast(text.read(), changes);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(WhatIf, NothingChangesNothing) {
  const TraceData trace = private_step().read();
  const WhatIfResult result = forecast(trace, RuleSubject::Name, "fused_update", 1.0);
  EXPECT_NEAR(result.predicted_us, result.measured_us, 1e-6);
  EXPECT_NEAR(sum_of(result.kinds), result.predicted_us, 1e-6);
}

TEST(WhatIf, KernelsThatAreGoneShortenADeviceBoundStep) {
  const TraceData trace = private_step().read();
  const WhatIfResult result = forecast(trace, RuleSubject::Name, "backward_*", 0);
  EXPECT_NEAR(result.measured_us - result.predicted_us, 200, 1);
  EXPECT_NEAR(forecast(trace, RuleSubject::Name, "*", 0).predicted_us, 0, 260);
}

TEST(WhatIf, NormsCostNothingButGradientsThatAreKeptStay) {
  WhatIf changes;
  changes.norms = true;
  const WhatIfResult result = forecast(private_step().read(), changes);
  EXPECT_NEAR(result.removed_device_us, 150 + 10, 1e-6);
  EXPECT_NEAR(result.measured_us - result.predicted_us, 160, 3);
}

// What gaps cost is no part of the step as it was traced, by which the measured one is told.
TEST(WhatIf, GapsChangeTheMeasuredStepAsMuchAsTheTracedOne) {
  TraceText text;
  text.range("forward", 0, 20);
  text.call("cudaLaunchKernel", 1, 2, 1).kernel("first", 10, 100, 1);
  text.call("cudaLaunchKernel", 4, 2, 2).kernel("second", 160, 100, 2);
  text.call("cudaDeviceSynchronize", 8, 252, 3);
  WhatIf changes;
  changes.rules = {{RuleSubject::Kind, "gap", 0}};
  changes.measured_us = 260;
  const WhatIfResult result = forecast(text.read(), changes);
  EXPECT_NEAR(result.measured_us - result.predicted_us, 50, 1);
  EXPECT_NEAR(changes.measured_us - result.predicted_measured_us, 50, 5);
}

TEST(WhatIf, AStepEndsWithTheKernelThatEndsLast) {
  TraceText text;
  text.call("cudaLaunchKernel", 0, 2, 1).kernel("long", 10, 300, 1);
  text.call("cudaLaunchKernel", 3, 2, 2).kernel("short", 50, 5, 2);
  const TraceData trace = text.read();
  const WhatIfResult same = forecast(trace, RuleSubject::Name, "short", 1);
  EXPECT_NEAR(same.predicted_us, same.measured_us, 1e-6);
  EXPECT_NEAR(forecast(trace, RuleSubject::Name, "long", 2).predicted_us - same.measured_us, 300,
              10);
}

TEST(WhatIf, NormsOfATraceWithoutPhasesAreRefused) {
  TraceText text;
  text.call("cudaLaunchKernel", 0, 2, 1).kernel("flash_norm", 10, 300, 1);
  EXPECT_THAT(problem_without_norms(text), testing::HasSubstr("got one without any"));
}

// A step without norms has faster kernels for sums, and where backward ran twice for attention.
TEST(WhatIf, WithoutNormsKernelsThatStandInAreTheFasterOnes) {
  const std::vector<std::string> names{
      "void moonshard::kernels::sample_gemm::sample_gemm_kernel<1>",
      "void pytorch_flash::flash_bwd_dq_dk_dv_loop", "gemm"};
  EXPECT_THAT(shares_of_plain_kernels(names, false), testing::ElementsAre(0.92, 1, 1));
  EXPECT_THAT(shares_of_plain_kernels(names, true), testing::ElementsAre(0.92, 0.55, 1));
  WhatIf changes;
  changes.norms = true;
  const double plain = forecast(private_step(false, "sum_gemm").read(), changes).predicted_us;
  EXPECT_NEAR(
      plain - forecast(private_step(false, "sample_gemm_kernel").read(), changes).predicted_us,
      0.08 * 100, 1e-6);
}

TEST(WhatIf, OfTwoPassesTheFirstIsGone) {
  WhatIf changes;
  changes.norms = true;
  const WhatIfResult result = forecast(private_step(true).read(), changes);
  EXPECT_NEAR(result.removed_device_us, 200 + 150 + 90 + 10, 1e-6);
  EXPECT_THAT(result.notes, testing::Contains(testing::HasSubstr("first of two backward passes")));
}

TEST(WhatIf, WithoutNoiseAnUpdateIsBoundByItsMemory) {
  WhatIf changes;
  changes.noise = true;
  changes.update_bytes_per_s = 1e9;  // 40 us for 40000 bytes
  const WhatIfResult result = forecast(private_step().read(), changes);
  EXPECT_NEAR(result.removed_device_us, 40, 1e-6);
  changes.update_bytes_per_s = 0;
  EXPECT_THAT(forecast(private_step().read(), changes).notes,
              testing::ElementsAre(testing::HasSubstr("bandwidth of NVIDIA H200 is not known")));
}

TEST(WhatIf, AStepWithoutRangesOfNormsIsRefused) {
  TraceText text;
  text.range("backward", 0, 50).range("clip_factors", 50, 50).op("aten::mm", 5, 40);
  text.op("aten::sqrt", 55, 10);
  WhatIf changes;
  changes.norms = true;
  try {
    forecast(text.read(), changes);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("trace the step again"));
  }
}

// A plan's spans hold norms and backward in one: its trace cannot say what norms take.
TEST(WhatIf, AModelledPrivateStepIsSentToThePlan) {
  for (const char* phase : {"clipped_sum", "second_backward", "update"}) {
    TraceText text;
    text.head("\"modelled\":true,").range("backward (modelled)", 0, 100, 0);
    text.range(std::string(phase) + " (modelled)", 100, 100, 0);
    text.span("modelled", "backward (modelled)", "host", 2, 0, 100);
    EXPECT_THAT(problem_without_norms(text),
                testing::AllOf(testing::HasSubstr("got a modelled one"),
                               testing::HasSubstr("moonshard plan with --mode none")))
        << phase;
    WhatIf changes;
    changes.rules = {{RuleSubject::Phase, "backward", 0.5}};
    const WhatIfResult faster = forecast(text.read(), changes);
    EXPECT_NEAR(faster.predicted_us, 50, 1e-6);
    EXPECT_NEAR(faster.removed_device_us, 50, 1e-6);
    EXPECT_EQ(faster.removed_host_us, 0) << "a ruler of phases is no work";
  }
}

TEST(WhatIf, NothingSlowedAModelledStepDown) {
  TraceText text;
  text.head("\"modelled\":true,").range("backward (modelled)", 0, 100, 0);
  text.span("modelled", "backward (modelled)", "host", 2, 0, 100);
  WhatIf changes;
  changes.rules = {{RuleSubject::Phase, "*", 0}};
  const WhatIfResult nothing = forecast(text.read(), changes);
  EXPECT_NEAR(nothing.predicted_us, 0, 1e-6);
  EXPECT_TRUE(nothing.notes.empty()) << nothing.notes[0];
}

TEST(WhatIf, AModelledPlainStepHasNoNorms) {
  TraceText text;
  text.head("\"modelled\":true,").range("graph (modelled)", 0, 100, 0);
  text.span("modelled", "backward (modelled)", "host", 2, 0, 100);
  WhatIf changes;
  changes.norms = changes.noise = true;
  EXPECT_THAT(forecast(text.read(), changes).notes,
              testing::ElementsAre("this step clips nothing: there are no norms to leave out",
                                   "this step adds no noise: there is none to leave out"));
}

// All kernels of a graph belong to its launch: nothing says which of them are norms.
TEST(WhatIf, AReplayedGraphDoesNotTellNormsApart) {
  TraceText text;
  text.range("graph", 0, 200).call("cudaGraphLaunch", 5, 10, 1).kernel("norms", 20, 30, 1);
  text.range("update", 200, 50).call("cudaDeviceSynchronize", 210, 30, 2);
  EXPECT_THAT(problem_without_norms(text), testing::HasSubstr("trace the step with compile = no"));
}

TEST(WhatIf, AFasterLinkCountsWhereItIsWaitedFor) {
  const auto step = [](double compute) {
    TraceText text;
    text.range("backward", 0, 30).range("optimizer", 30, 970);
    text.call("cudaLaunchKernel", 10, 2, 1).kernel("gemm", 16, compute, 1);
    text.call("ncclLaunch", 14, 2, 2).kernel("ncclDevKernel_AllReduce", 20, 400, 2, 13);
    text.call("cudaEventRecord", 18, 1, 3).call("cudaStreamWaitEvent", 20, 1, 4);
    const double ready = std::max(16 + compute, 420.0) + 2;
    text.call("cudaLaunchKernel", 32, 2, 5).kernel("sgd", ready, 10, 5);
    text.call("cudaDeviceSynchronize", 40, ready - 25, 6);
    return text.read();
  };
  WhatIfResult exposed = forecast(step(100), RuleSubject::Kind, "communication", 0.5);
  EXPECT_NEAR(exposed.measured_us - exposed.predicted_us, 200, 3);
  WhatIfResult hidden = forecast(step(700), RuleSubject::Kind, "communication", 0.5);
  EXPECT_NEAR(hidden.measured_us - hidden.predicted_us, 0, 3);
}

TEST(WhatIf, ARuleThatMatchesNothingSaysWhatThereIs) {
  const TraceData trace = private_step().read();
  const auto problem = [&](RuleSubject subject, const std::string& glob, double factor) {
    try {
      forecast(trace, subject, glob, factor);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(problem(RuleSubject::Phase, "backwrd", 0.5),
              testing::HasSubstr("expected a phase of this step, got 'backwrd'"));
  EXPECT_THAT(problem(RuleSubject::Phase, "backwrd", 0.5), testing::HasSubstr("clip_factors"));
  EXPECT_THAT(problem(RuleSubject::Name, "nothing*", 0), testing::HasSubstr("matches nothing"));
  EXPECT_THAT(problem(RuleSubject::Kind, "kernel", -1), testing::HasSubstr("at least 0, got -1"));
}

TEST(WhatIf, TheHostsWorkInsideOfARangeGoesWithIt) {
  TraceText text;
  text.range("forward", 0, 1000).range("norms a", 100, 300).op("aten::mm", 120, 250);
  text.op("aten::add", 500, 400).range("clip_factors", 1000, 10);
  WhatIf changes;
  changes.norms = true;
  const WhatIfResult result = forecast(text.read(), changes);
  EXPECT_NEAR(result.measured_us - result.predicted_us, 310, 1e-6);
}

// A hundred short operators and one long one: a trace takes as much of each.
TEST(WhatIf, ATraceTakesItsTimeOfEveryOperator) {
  TraceText text;
  text.range("forward", 0, 1000).range("norms a", 0, 1000).range("clip_factors", 2000, 10);
  for (int i = 0; i < 100; ++i) text.op("aten::mul", i * 10, 10);
  text.range("update", 1000, 1000).op("aten::mm", 1000, 1000);
  WhatIf changes;
  changes.norms = true;
  changes.measured_us = 2010 - 101 * 4;
  const WhatIfResult result = forecast(text.read(), changes);
  EXPECT_NEAR(result.predicted_us, 1000, 1e-6);
  // The long operator hardly got longer: scaled by the step's length it would be 800.
  EXPECT_NEAR(result.predicted_measured_us, 1000 - 4, 1);
  EXPECT_NEAR(result.host_scale, changes.measured_us / 2010, 0.01);
}

// A step that waits for its device shows nothing of the host: the usual overhead is taken off.
TEST(WhatIf, BehindTheDeviceTheHostIsTakenForAsFastAsUsual) {
  TraceText text;
  text.range("forward", 0, 1000).range("clip_factors", 1000, 1);
  for (int i = 0; i < 100; ++i) text.call("cudaLaunchKernel", i * 10, 4, i + 1);
  for (int i = 0; i < 100; ++i) text.kernel(i % 2 == 0 ? "norm" : "gemm", 5 + i * 20, 20, i + 1);
  text.call("cudaDeviceSynchronize", 1001, 1004, 200);
  WhatIf changes;
  changes.rules = {{RuleSubject::Name, "norm", 0}, {RuleSubject::Name, "gemm", 0.2}};
  changes.measured_us = 2005;
  const WhatIfResult result = forecast(text.read(), changes);
  EXPECT_LT(result.host_scale, 0.9);
  EXPECT_LT(result.predicted_measured_us, result.predicted_us - 90);
}

TEST(TraceDiff, SortsByWhatChangedMost) {
  TraceText before, after;
  before.range("forward", 0, 100).call("cudaLaunchKernel", 2, 2, 1).kernel("gemm", 10, 60, 1);
  before.call("cudaLaunchKernel", 5, 2, 2).kernel("relu", 71, 10, 2);
  after.range("forward", 0, 100).call("cudaLaunchKernel", 2, 2, 1).kernel("gemm", 10, 30, 1);
  after.call("cudaLaunchKernel", 5, 2, 2).kernel("relu", 41, 11, 2);
  after.call("cudaLaunchKernel", 8, 2, 3).kernel("extra", 55, 5, 3);
  const TraceDiff diff = compare_traces(before.read(), after.read());
  ASSERT_EQ(diff.names.size(), 3u);
  EXPECT_EQ(diff.names[0].name, "gemm");
  EXPECT_DOUBLE_EQ(diff.names[0].change_us(), -30);
  EXPECT_EQ(diff.names[1].name, "extra");
  EXPECT_DOUBLE_EQ(diff.names[1].count[0], 0);
  ASSERT_EQ(diff.phases.size(), 1u);
  EXPECT_DOUBLE_EQ(diff.phases[0].change_us(), -30 + 1 + 5);
  EXPECT_DOUBLE_EQ(diff.device_us[1], 46);
}

TEST(TraceDiff, OfTracesWithoutADeviceCountsOperatorsByTheirOwnTime) {
  TraceText before, after;
  before.range("forward", 0, 100).op("aten::linear", 10, 80).op("aten::mm", 20, 50);
  after.range("forward", 0, 100).op("aten::linear", 10, 80).op("aten::mm", 20, 70);
  const TraceDiff diff = compare_traces(before.read(), after.read());
  ASSERT_EQ(diff.names.size(), 2u);
  EXPECT_DOUBLE_EQ(diff.names[0].us[0] + diff.names[1].us[0], 80);
  for (const DiffRow& row : diff.names) EXPECT_DOUBLE_EQ(row.count[0], 1) << row.name;
}

}  // namespace
}  // namespace moonshard::tracing
