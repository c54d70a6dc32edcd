// The memory of a GPU's step: what layers, engines and units hold, when, and what H200s have
// measured.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/plan/allocator_pieces.h"
#include "runtime/plan/gradient_walk.h"
#include "runtime/plan/partial_sums.h"
#include "tests/runtime/plan/test_machine.h"

namespace moonshard::plan {
namespace {

// Rows that the update reads stay in the graph as rows, beside sums of the micro-batches before.
TEST(PlannedMemory, AGraphHoldsRowsWhereTheUpdateReadsThem) {
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

// Only the last micro-batch's rows go to the update as they are: engine auto keeps those of its
// blocks, and inputs of the micro-batch before. As one H200 has measured it (plan_drawn_5).
TEST(PlannedMemory, AutoPlansTheLastMicroBatchByItself) {
  Cluster h200 = one_h200();
  const Json options = step_of("llama3.1-8b", "auto",
                               {{"task", "lm"},
                                {"num_layers", 6},
                                {"batch_size", 4},
                                {"seq_length", 1280},
                                {"optimizer", "adamw"},
                                {"grad_accum", 2}});
  const Prediction plan = step_predicted(options, h200);
  for (const LayerWay& way : plan.ways.block) EXPECT_EQ(way.kept, Kept::Rows);
  EXPECT_NEAR(plan.memory.peak / kGiB / 48.40, 1, 0.01);
  EXPECT_LE(plan.memory.peak, plan.most_bytes);
  // Another rank needs the sums of all: no micro-batch gains by rows.
  Json one = options;
  one["grad_accum"] = 1;
  h200.gpus = 2;
  const Prediction summed = step_predicted(one, h200);
  EXPECT_TRUE(std::ranges::any_of(summed.ways.block, [](const LayerWay& way) {
    return way.joins && way.kept == Kept::Inputs;
  }));
}

// Rows count as held before the first update, as sums do (train/step_update.cpp).
TEST(PlannedMemory, RowsOfTheFirstUpdateAreNotTakenOnceMore) {
  Cluster cluster = one_gpu();
  const experiment::ExperimentOptions options =
      resolve_for(step_of("llama3.2-1b", "bookkeeping", {{"wrap", "none"}}), cluster);
  const PlannedModel model(options, options.seq_length, true);
  const auto peak = [&](double rows) {
    MemoryLedger ledger;
    const MemorySituation situation;
    GradientWalk gradients(model, /*is_private=*/true, options, situation, ledger);
    gradients.begin_micro_batch(/*last=*/true);
    gradients.leave_rows(0, rows);
    gradients.complete(0);
    MemoryPlan plan;
    ledger.leave_peak(plan);
    return plan.peak;
  };
  const auto all = static_cast<double>(model.num_trained);
  EXPECT_EQ(peak(0), 4 * all);
  EXPECT_EQ(peak(0.75 * all), all);
  EXPECT_EQ(peak(all), 0);
}

// A segment of 20 MiB holds three tensors of 6.5, whose last one has the rest; one of 12 MiB is for
// 11.25 alone, and 1.5 of one of 14 are cut off.
TEST(PlannedMemory, TensorsAreAsLargeAsTheAllocatorMakesThem) {
  constexpr double kMiB = 1048576;
  EXPECT_EQ(as_allocated(0.75 * kMiB), 0.75 * kMiB);
  EXPECT_EQ(as_allocated(4.5 * kMiB), 4.5 * kMiB) << "2 of 20 MiB are cut off";
  EXPECT_NEAR(as_allocated(6.5 * kMiB), 20 * kMiB / 3, 1);
  EXPECT_EQ(as_allocated(11.25 * kMiB), 12 * kMiB);
  EXPECT_EQ(as_allocated(12.5 * kMiB), 12.5 * kMiB);
  EXPECT_EQ(as_allocated(81 * kMiB), 82 * kMiB);
}

// Of a GPU's tensors only, in segments that do not grow: hidden_dim 1152 and 20 x 256 positions are
// 11.25 MiB.
TEST(PlannedMemory, OfACpuHasNoPieces) {
  Cluster gpu = one_gpu(), cpu = one_gpu(), growing = one_gpu();
  gpu.machine.fixed_segments = cpu.machine.fixed_segments = true;
  cpu.machine.is_gpu = false;
  const auto rest = [](const Cluster& cluster, int64_t samples) {
    const Json options =
        step_of("dit-xl/2", "bookkeeping", {{"task", "denoise"}, {"batch_size", samples}});
    const auto& at_peak = step_predicted(options, cluster).memory.at_peak;
    return at_peak[static_cast<size_t>(Holder::Rest)];
  };
  EXPECT_LT(rest(cpu, 2), 1e6);
  EXPECT_LT(rest(growing, 2), 1e6);
  EXPECT_GT(rest(gpu, 2), 20e6);
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
    bool fixed_segments = true;  // LibTorch's own setting, of which the older figures are
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
      // The head's weight is the table's: its bucket is complete, and sent, with the first sums.
      {"llama3.2-1b", "bookkeeping", 4, 512, {{"parallel", "ddp"}, {"compile", "yes"}}, 8, 18.62},
      // Without a wrapper, too, the largest update's gradients are taken before the first update,
      // which here is that of the last block.
      {"gemma-3-1b", "flash", 4, 1024, {{"parallel", "none"}, {"task", "classify"}}, 1, 17.28},
      // Bias gradients are formed beside partial sums, and branches behind a gate have a gradient
      // of their own.
      {"dit-l/8", "none", 3, 1024, {{"task", "denoise"}, {"cpu_offload", true}}, 1, 2.81},
      // Gradients on their way to the host: one unit's memory more than wait for their updates.
      {"qwen1.5-1.8b",
       "ghost",
       2,
       640,
       {{"task", "classify"}, {"optimizer", "sgd"}, {"cpu_offload", true}},
       1,
       3.13},
      {"dit-xl/2",
       "none",
       7,
       256,
       {{"task", "denoise"}, {"checkpointing", "keep_attention"}, {"state_dtype", "bfloat16"}},
       8,
       1.47},
      // Tensors of 11.25 and 45 MiB, for which the allocator gives 12 and 46.
      {"dit-xl/2",
       "flash_bookkeeping",
       20,
       256,
       {{"task", "denoise"}, {"checkpointing", "block"}, {"compile", "yes"}},
       8,
       6.324,
       0.01},
      {"dit-xl/2", "none", 20, 256, {{"task", "denoise"}}, 1, 13.568, 0.005},
      {"dit-xl/2",
       "bookkeeping",
       41,
       256,
       {{"task", "denoise"}, {"sharding", "zero2"}},
       4,
       14.945,
       0.01},
      // The same by an allocator whose segments grow.
      {"dit-xl/2",
       "bookkeeping",
       8,
       256,
       {{"task", "denoise"}, {"compile", "yes"}},
       1,
       10.198,
       0.005,
       false},
      {"llama3.1-8b",
       "none",
       141,
       768,
       {{"task", "classify"}, {"num_layers", 9}, {"last_block", "all"}},
       1,
       133.75,
       0.015,
       false},
      // The last block for the scored token: with kept inputs and gradients, and in two passes.
      {"llama3.1-8b",
       "auto",
       2,
       1024,
       {{"task", "classify"}, {"optimizer", "sgd"}, {"memory_budget_mb", 24000}},
       1,
       54.502,
       0.005,
       false},
      {"llama3.1-8b",
       "auto",
       2,
       4096,
       {{"task", "classify"}, {"optimizer", "sgd"}, {"memory_budget_mb", 24000}},
       1,
       56.543,
       0.01,
       false},
  };
  for (const Measured& point : points) {
    Json options = step_of(point.model, point.mode, point.more);
    if (!options.contains("task")) options["task"] = "lm";
    options["batch_size"] = point.samples;
    options["seq_length"] = point.tokens;
    if (!options.contains("optimizer")) options["optimizer"] = "adamw";
    Cluster cluster = one_gpu();
    cluster.machine.context_bytes = 68e6;
    cluster.machine.fixed_segments = point.fixed_segments;
    cluster.gpus = point.ranks;
    EXPECT_NEAR(step_predicted(options, cluster).memory.peak / kGiB / point.gib, 1, point.within)
        << point.model << " " << point.mode << " " << point.samples << " x " << point.tokens;
  }
}

}  // namespace
}  // namespace moonshard::plan
