// What a step's time is beyond the rates of its products: attention that is no kernel, small
// parameters, noise, graphs and the host.
#include <gtest/gtest.h>

#include "runtime/plan/gram_rounds.h"
#include "runtime/plan/shared_costs.h"
#include "runtime/plan/update_costs.h"
#include "runtime/train/step_graph.h"
#include "tests/runtime/plan/test_machine.h"

namespace moonshard::plan {
namespace {

double phase_ms(const Prediction& prediction, const std::string& name) {
  for (const auto& [phase, ms] : prediction.time.phases_ms)
    if (phase == name) return ms;
  return 0;
}

TEST(StepCosts, ScoresThatAreATensorTakeTheirTraffic) {
  const Cluster cluster = one_gpu();
  const double fused = step_predicted(step_of("llama3.2-1b", "none"), cluster).time.step_ms;
  const double matrix =
      step_predicted(step_of("llama3.2-1b", "none", {{"attention", "standard"}}), cluster)
          .time.step_ms;
  // 16 blocks of 2 x 32 x 1024 x 1024 scores, some 30 bytes of each in forward and in backward.
  const double traffic_ms = 16 * 2 * 32 * 1024.0 * 1024.0 * 60 / 3000e9 * 1e3;
  EXPECT_GT(matrix, fused + traffic_ms);
  EXPECT_LT(matrix, fused + 3 * traffic_ms);
}

TEST(StepCosts, AWindowIsAMaskThatEveryScoreReadsInFloat32) {
  const Cluster cluster = one_gpu();
  const auto backward = [&](int64_t window) {
    const Json options =
        step_of("gemma-3-1b", "none", {{"attention_window", window}, {"param_dtype", "float32"}});
    return phase_ms(step_predicted(options, cluster), "backward");
  };
  EXPECT_GT(backward(512), 1.1 * backward(1024));  // as long as the text: there is no mask
}

TEST(StepCosts, AKernelLeavesOutWhatAWindowHides) {
  const Cluster cluster = one_gpu();
  const auto forward = [&](int64_t window) {
    const Json options =
        step_of("gemma-3-1b", "none", {{"attention_window", window}, {"seq_length", 4096}});
    return phase_ms(step_predicted(options, cluster), "forward");
  };
  // 22 local layers of 2 x 4 heads of 256: scores of the last 512 tokens or fewer.
  const double all = 22 * 4 * 2 * 4 * 256 * 4096.0 * 4096.0 / 2,
               seen = (512.0 * 4096 - 512.0 * 512 / 2) / (4096.0 * 4096 / 2);
  const InStep step;
  const double rate =
      attention_rate(cluster.machine.rates("bfloat16"), 4096, 256, true).forward_per_s *
      step.attention_forward;
  EXPECT_NEAR(forward(4096) - forward(512), all * (1 - seen / step.windowed) / rate * 1e3,
              1e-3 * all / rate * 1e3);
}

TEST(StepCosts, NoiseIsDrawnBesideTheMemoryTraffic) {
  const Cluster cluster = one_gpu();
  const experiment::ExperimentOptions resolved =
      resolve_for(step_of("llama3.2-1b", "bookkeeping"), cluster);
  const PlannedModel model(resolved, resolved.seq_length, true);
  MachineProfile machine = cluster.machine;
  const auto seconds = [&](bool noise) {
    return update_seconds(model, machine, {.elements = 1e9}, 0, 0, noise);
  };
  const double moved = seconds(false);
  machine.noise_per_s = 0.25 * 1e9 / moved;  // takes as long as the traffic does
  EXPECT_GT(seconds(true), 1.1 * moved);
  EXPECT_LT(seconds(true), 1.5 * moved);
  machine.noise_per_s *= 10;
  EXPECT_NEAR(seconds(true), moved, 0.01 * moved);
}

TEST(StepCosts, RowsOfSmallParametersAreAddedUpOneByOne) {
  Cluster cluster = one_gpu();
  const auto update = [&](int64_t samples) {
    return phase_ms(
        step_predicted(step_of("dit-xl/2", "bookkeeping",
                               {{"batch_size", samples}, {"task", "denoise"}, {"seq_length", 256}}),
                       cluster),
        "update");
  };
  const double units = 29;  // 28 blocks and what is around them
  EXPECT_NEAR(update(40) - update(8), 32 * units * cluster.machine.in_step.row_us * 1e-3, 0.05);
}

TEST(StepCosts, SharedCostsChangeNothing) {
  const Cluster cluster = one_gpu();
  SharedCosts shared(cluster.machine);
  for (const char* mode : {"none", "bookkeeping", "auto", "flash"}) {
    for (const int64_t accum : {1, 2}) {
      const Json options = step_of("llama3.2-1b", mode, {{"grad_accum", accum}});
      const experiment::ExperimentOptions resolved = resolve_for(options, cluster);
      const PlannedModel model(resolved, resolved.seq_length, true);
      const Prediction alone = predict(model, resolved, cluster);
      for (int again = 0; again < 2; ++again) {
        const Prediction same = predict(model, resolved, cluster, nullptr, &shared);
        EXPECT_EQ(same.time.step_ms, alone.time.step_ms) << mode;
        EXPECT_EQ(same.memory.peak, alone.memory.peak) << mode;
      }
    }
  }
}

// Plain training has all its gradients at the end of backward anyway; a private step updates unit
// by unit, and a graph cannot.
TEST(PlannedGraph, HoldsAllGradientsUntilTheUpdate) {
  const Cluster cluster = one_gpu();
  const double gradients = 1235814400.0 * 4;
  for (const char* mode : {"none", "bookkeeping"}) {
    Json options = step_of("llama3.2-1b", mode, {{"batch_size", 1}, {"seq_length", 128}});
    const Prediction eager = step_predicted(options, cluster);
    options["compile"] = "yes";
    const Prediction graph = step_predicted(options, cluster);
    EXPECT_TRUE(graph.graph);
    EXPECT_FALSE(eager.graph);
    EXPECT_EQ(graph.memory.peak == eager.memory.peak, std::string(mode) == "none") << mode;
    EXPECT_GT(graph.memory.peak, graph.memory.fixed + gradients) << mode;
  }
}

TEST(PlannedGraph, IsMadeWhereTheTrainingWouldMakeOne) {
  const Json options =
      step_of("dit-xl/2", "none", {{"compile", "auto"}, {"task", "denoise"}, {"seq_length", 256}});
  EXPECT_TRUE(step_predicted(options, one_gpu(/*launch_us=*/500)).graph);
  EXPECT_FALSE(step_predicted(options, one_gpu()).graph);
  Json drawn = options;
  drawn["clipping"] = "adaptive";
  drawn["mode"] = "bookkeeping";
  EXPECT_FALSE(step_predicted(drawn, one_gpu(500)).graph);
  Cluster two = one_gpu(500);
  two.gpus = 2;
  EXPECT_TRUE(step_predicted(options, two).graph);
  Json replicated = options;
  replicated["parallel"] = "fsdp";
  replicated["sharding"] = "zero2_replicated";
  EXPECT_FALSE(step_predicted(replicated, two).graph);
  Cluster small = one_gpu(500);  // a graph's temporaries and gradients lie beside the step's
  small.machine.memory_bytes = 1.2 * step_predicted(options, one_gpu()).memory.peak;
  EXPECT_FALSE(step_predicted(options, small).graph);
}

// Every rank updates its part: forward waits for the others' parts of each unit.
TEST(StepCosts, WeightsThatStayWholeAreGatheredBeforeTheyAreUsed) {
  Cluster two = one_gpu();
  two.gpus = 2;
  const auto forward = [&](const char* link) {
    two.link = link;
    const Json options = step_of("llama3.2-1b", "none", {{"sharding", "zero2_replicated"}});
    return phase_ms(step_predicted(options, two), "forward");
  };
  EXPECT_GT(forward("ethernet10"), 10 * forward("instant"));
}

TEST(PlannedGraph, RoomIsForTemporariesAndGradientsAgain) {
  EXPECT_TRUE(train::StepGraph::has_room(50, 30, 10, 100));   // 50 + 20 + 10 of 90
  EXPECT_FALSE(train::StepGraph::has_room(50, 20, 10, 100));  // 50 + 30 + 10
  EXPECT_TRUE(train::StepGraph::has_room(50, 20, 10, 0));     // nobody knows
}

// The host is no more than a queue of kernels ahead: in a step of many it is busy until near the
// end, however little its launches take. That is not what a graph helps against.
TEST(PlannedGraph, AHostThatWaitsForTheQueueOfKernelsIsNotSlow) {
  const Cluster cluster = one_gpu();
  const auto share = [&](int64_t micro_batches) {
    return step_predicted(step_of("llama3.2-1b", "none", {{"grad_accum", micro_batches}}), cluster)
        .time.host_share;
  };
  EXPECT_LT(share(1), 0.3);
  EXPECT_LT(share(16), 0.3);
  EXPECT_LT(share(64), 0.3);
}

// Blocks of Llama 8B, two samples: milliseconds of the kernel alone (docs/kernels.md).
TEST(GramRounds, TakeWhatTheKernelTakesForABlock) {
  const auto group = [](double positions, double width) { return GramGroup{2, positions, width}; };
  const auto seconds = [&](double positions, double per_s) {
    const std::vector<GramGroup> block{group(positions, 10240), group(positions, 8192),
                                       group(positions, 32768), group(positions, 18432)};
    double work = 0;
    for (const GramGroup& own : block)
      work += own.samples * positions * (positions + 128) * own.width;
    return work / (per_s * gram_share(block));
  };
  // One input's layers alone leave the third round of tiles nearly empty, as a calibration has
  // them.
  EXPECT_NEAR(gram_share({group(2048, 16384)}), 136.0 / (3 * 66), 1e-9);
  const double per_s = 489e12 / gram_share({group(2048, 16384)});  // 528 in units of norm_cost.h
  EXPECT_NEAR(seconds(1024, per_s) * 1e3, 0.256, 0.03 * 0.256);
  EXPECT_NEAR(seconds(2048, per_s) * 1e3, 0.881, 0.03 * 0.881);
  EXPECT_NEAR(seconds(4096, per_s) * 1e3, 3.619, 0.07 * 3.619) << "at the limit of power";
}

// Sums of kept rows are formed in the row that is sent: they are not copied there.
TEST(StepCosts, RowsAreSummedUpWhereTheyAreSent) {
  Cluster two = one_gpu();
  two.gpus = 2;
  two.link = "instant";
  const auto sums = [&](const Cluster& cluster) {
    return phase_ms(step_predicted(step_of("llama3.2-1b", "materialize"), cluster), "clipped_sum");
  };
  // Two samples' rows in float32, of all weights, are read, their sum is written, and the reduction
  // goes over it; a copy would read and write it once more.
  const double weights = 1235814400, per_s = 3000e9;
  EXPECT_NEAR(sums(two), 1e3 * 16 * weights / per_s, 0.1 * 1e3 * 16 * weights / per_s);
}

// Behind a graph the host launches what ranks tell each other; reductions are a part of it.
TEST(PlannedGraph, OfSeveralRanksHasTheEndOfItsReductions) {
  Cluster two = one_gpu(/*launch_us=*/100);
  two.gpus = 2;
  two.link = "ethernet10";
  const Prediction plan = step_predicted(step_of("llama3.2-1b", "none", {{"compile", "yes"}}), two);
  ASSERT_TRUE(plan.graph);
  const InStep step;
  EXPECT_NEAR(phase_ms(plan, "reduce"), 0.1 * step.launch * step.reduced, 0.01);
}

// What the host launches beside a layer's products.
TEST(PlannedHost, LaunchesWhatAStepRuns) {
  const auto host_ms = [&](const char* model, const char* mode, const Json& more, int64_t ranks) {
    Cluster cluster = one_gpu(/*launch_us=*/100);
    cluster.gpus = ranks;
    return step_predicted(step_of(model, mode, more), cluster).time.host_ms;
  };
  const double plain = host_ms("llama3.2-1b", "bookkeeping", Json::object(), 1);
  // Forward once, backward twice, and no sums of their own.
  EXPECT_NEAR(host_ms("llama3.2-1b", "flash", Json::object(), 1), 1.6 * plain, 0.15 * plain);
  EXPECT_GT(host_ms("llama3.2-1b", "bookkeeping", {{"lora_rank", 8}}, 1), 1.3 * plain);
  // No wrapper has weights in halves: they are cast at each use.
  EXPECT_GT(host_ms("llama3.2-1b", "bookkeeping", {{"parallel", "none"}}, 1), 1.2 * plain);
  EXPECT_GT(host_ms("llama3.2-1b", "materialize", Json::object(), 1), 1.3 * plain);
  // Blocks are gathered twice, the root once; 7 matrices and 2 norms of 16 blocks, a table and a
  // norm are put into rows.
  const InStep step;
  const double units = 17, gathers = 2 * units - 2, tensors = 16 * 9 + 2;
  const double layers = step.gather * gathers + units * step.reduce + step.reduced_tensor * tensors;
  EXPECT_NEAR(host_ms("llama3.2-1b", "bookkeeping", Json::object(), 4) - plain,
              0.1 * step.launch * layers, 0.05 * plain);
}

TEST(PlannedHost, CappedAndMaskedScoresAreOperationsOfTheirOwn) {
  const auto host_ms = [&](const Json& more) {
    return step_predicted(step_of("gemma-3-1b", "none", more), one_gpu(100)).time.host_ms;
  };
  const InStep step;
  const double per_layer = 0.1 * step.launch * 2;  // forward and backward
  // A window as long as the text is none; a kernel in 16 bits has windows.
  const double fused = host_ms({{"attention_window", 1024}});
  EXPECT_NEAR(host_ms({{"attention_window", 512}}), fused, 0.1);
  EXPECT_NEAR(host_ms({{"attention_softcap", 50}}) - fused, 26 * step.capped * per_layer, 0.1);
  const auto wide_ms = [&](int64_t window) {
    return host_ms({{"attention_window", window}, {"param_dtype", "float32"}});
  };
  EXPECT_NEAR(wide_ms(512) - wide_ms(1024), 22 * step.masked * per_layer, 0.1);
}

}  // namespace
}  // namespace moonshard::plan
