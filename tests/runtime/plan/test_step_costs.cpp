// What a step costs beyond the rates of its products: attention that is no kernel, small
// parameters, noise, graphs and the host.
#include <gtest/gtest.h>

#include "runtime/plan/gradient_walk.h"
#include "runtime/plan/partial_sums.h"
#include "runtime/plan/plan_request.h"
#include "runtime/plan/shared_costs.h"
#include "runtime/plan/update_costs.h"
#include "runtime/train/step_graph.h"
#include "tests/runtime/plan/test_machine.h"

namespace moonshard::plan {
namespace {

Cluster one_gpu(double launch_us = 0.01) {
  Cluster cluster;
  cluster.machine = machine_with_round_rates("cuda", 0.01);
  cluster.machine.launch_us = launch_us;
  return cluster;
}

Json step_of(const char* model, const char* mode, const Json& more = Json::object()) {
  Json options{
      {"model", model},     {"mode", mode},       {"batch_size", 2}, {"seq_length", 1024},
      {"parallel", "fsdp"}, {"dtype", "float32"}, {"compile", "no"}, {"param_dtype", "bfloat16"}};
  options.update(more);
  return options;
}

Prediction step_predicted(const Json& options, const Cluster& cluster,
                          SharedCosts* shared = nullptr) {
  const experiment::ExperimentOptions resolved = resolve_for(options, cluster);
  return predict(PlannedModel(resolved, resolved.seq_length, cluster.machine.is_gpu), resolved,
                 cluster, nullptr, shared);
}

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

// Rows that the update reads stay in the graph as rows, beside sums of the micro-batches before.
TEST(PlannedGraph, HoldsRowsWhereTheUpdateReadsThem) {
  const auto held = [&](const char* mode, int64_t micro_batches) {
    Json options = step_of("llama3.2-1b", mode, {{"batch_size", 3}, {"task", "classify"}});
    options["seq_length"] = 32;  // next to no activations
    options["grad_accum"] = micro_batches;
    options["compile"] = "yes";
    const MemoryPlan plan = step_predicted(options, one_gpu()).memory;
    return plan.peak - plan.fixed;
  };
  const double parameters = 1235814400;
  EXPECT_NEAR(held("bookkeeping", 1) / (4 * parameters), 1, 0.08);
  EXPECT_NEAR(held("materialize", 1) / (12 * parameters), 1, 0.08);
  EXPECT_NEAR(held("materialize", 2) / (16 * parameters), 1, 0.08);
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

// A unit's pieces go into its row one after another: the first one's gradient is gone before the
// rows of the next are summed up.
TEST(PlannedMemory, PiecesOfARowAreThereOneAfterAnother) {
  Cluster cluster = one_gpu();
  cluster.gpus = 2;
  const experiment::ExperimentOptions options =
      resolve_for(step_of("llama3.2-1b", "bookkeeping", {{"wrap", "none"}}), cluster);
  const PlannedModel model(options, options.seq_length, true);
  MemorySituation situation;
  situation.ranks = 2;
  MemoryLedger ledger;
  GradientWalk gradients(model, /*is_private=*/true, options, situation, ledger);
  gradients.begin_micro_batch(/*last=*/true);
  gradients.form(0, 1e12);
  ledger.add(Holder::EngineKept, 100);
  gradients.keep_rows(0, 100, 1e12);
  gradients.complete(0);
  MemoryPlan plan;
  ledger.leave_peak(plan);
  EXPECT_LT(plan.peak, 1.1e12);
  EXPECT_EQ(ledger.of(Holder::EngineKept), 0);
  EXPECT_EQ(ledger.of(Holder::Gradients), 0);
}

// What an H200's allocator gave to at::sum of bfloat16 [summed, outputs] over its rows.
TEST(PlannedMemory, SumsOverPositionsAreFormedInParts) {
  constexpr double kMiB = 1048576;
  EXPECT_NEAR(partial_sums_bytes(1152, 9216) / kMiB, 82.0, 1.1) << "and the end of its block";
  EXPECT_NEAR(partial_sums_bytes(4608, 9216) / kMiB, 132.77, 0.1);
  EXPECT_NEAR(partial_sums_bytes(3456, 3072) / kMiB, 82.01, 1.1);
  EXPECT_NEAR(partial_sums_bytes(1024, 2048) / kMiB, 16.0, 0.1);
  EXPECT_NEAR(partial_sums_bytes(4096, 156672) / kMiB, 306.02, 0.1);
  EXPECT_EQ(partial_sums_bytes(4608, 256), 0) << "a block has it alone";
  EXPECT_EQ(partial_sums_bytes(4608, 1), 0);
}

// Peaks that one H200 has measured (examples/results/plan_heldout, and points drawn at random).
TEST(PlannedMemory, IsWhatAGpuHasHeld) {
  struct Measured {
    const char *model, *mode;
    int64_t samples, tokens;
    Json more;
    int64_t ranks;
    double gib;
    double within = 0.02;
  };
  const std::vector<Measured> points{
      // The head's (a, g) go with the embedding's, whose weight it shares.
      {"llama3.2-1b", "bookkeeping", 3, 768, Json::object(), 1, 18.28},
      {"llama3.2-1b", "bookkeeping", 6, 768, {{"optimizer", "sgd"}}, 1, 11.99},
      {"gemma-3-1b", "bookkeeping", 4, 768, Json::object(), 1, 18.09},
      // Each sample's gradient of the table, and the sum with the head's.
      {"llama3.2-1b", "materialize", 2, 768, Json::object(), 1, 27.01},
      // What the micro-batch before has sent is no part of the last one's update.
      {"llama3.2-1b", "flash_bookkeeping", 3, 1024, {{"grad_accum", 2}}, 2, 14.48},
      // Two passes over windows: no scores, but copies of the queries' gradient, and the head's
      // gradient until the table's.
      {"gemma-3-1b", "flash", 2, 2560, {{"optimizer", "sgd"}, {"momentum", 0.9}}, 2, 16.26},
      {"gemma-3-1b", "flash", 1, 4096, {{"dtype", "bfloat16"}}, 4, 11.79},
      // The first of them has a place of its own for the gradient of scores, which nobody keeps.
      {"vaultgemma-1b",
       "flash",
       5,
       768,
       {{"lora_rank", 16}, {"optimizer", "adam"}, {"wrap", "none"}, {"replicate", 2}},
       4,
       12.85},
      {"llama3.2-1b",
       "ghost",
       1,
       2560,
       {{"lora_rank", 16}, {"optimizer", "sgd"}, {"grad_accum", 2}, {"compile", "yes"}},
       1,
       5.97},
      // The last block's sums are formed when the unit, here the whole model, has been released.
      {"llama3.2-1b", "flash", 6, 768, {{"wrap", "none"}}, 8, 11.33, 0.03},
      // Micro-batches that do not reduce add to the gradients of those before.
      {"qwen1.5-1.8b",
       "bookkeeping",
       3,
       512,
       {{"parallel", "ddp"}, {"optimizer", "sgd"}, {"grad_accum", 2}, {"no_sync", true}},
       4,
       17.66},
      {"llama3.2-1b", "none", 3, 1024, {{"grad_accum", 4}, {"no_sync", true}}, 4, 13.20},
      // A graph: rows and gradients stay until its end.
      {"dit-l/8", "materialize", 7, 1024, {{"task", "denoise"}, {"compile", "yes"}}, 1, 17.30},
      {"qwen2.5-1.5b",
       "flash_bookkeeping",
       7,
       1536,
       {{"compile", "yes"}, {"state_dtype", "bfloat16"}},
       1,
       32.78},
      {"llama3.2-1b", "flash", 3, 512, {{"compile", "yes"}}, 1, 18.59},
      // Bias gradients are formed beside partial sums, and branches behind a gate have a gradient
      // of their own.
      {"dit-l/8", "none", 3, 1024, {{"task", "denoise"}, {"cpu_offload", true}}, 1, 2.81},
      {"dit-xl/2",
       "none",
       7,
       256,
       {{"task", "denoise"}, {"checkpointing", "keep_attention"}, {"state_dtype", "bfloat16"}},
       8,
       1.47,
       0.025},
  };
  for (const Measured& point : points) {
    Json options = step_of(point.model, point.mode, point.more);
    if (!options.contains("task")) options["task"] = "lm";
    options["batch_size"] = point.samples;
    options["seq_length"] = point.tokens;
    if (!options.contains("optimizer")) options["optimizer"] = "adamw";
    Cluster cluster = one_gpu();
    cluster.machine.context_bytes = 68e6;
    cluster.gpus = point.ranks;
    EXPECT_NEAR(step_predicted(options, cluster).memory.peak / kGiB / point.gib, 1, point.within)
        << point.model << " " << point.mode << " " << point.samples << " x " << point.tokens;
  }
}

}  // namespace
}  // namespace moonshard::plan
