// Predictions: memory against what a step really holds, the order of a simulated step, and
// profiles.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/experiment/experiment.h"
#include "runtime/plan/plan_request.h"
#include "tests/runtime/plan/test_machine.h"

namespace moonshard::plan {
namespace {

using experiment::ExperimentOptions;

MachineProfile machine_of(bool is_gpu) {
  return machine_with_round_rates(is_gpu ? "cuda" : "cpu", 0.01);
}

Cluster cluster_of(int64_t gpus, bool is_gpu = true) {
  Cluster cluster;
  cluster.machine = machine_of(is_gpu);
  cluster.gpus = gpus;
  return cluster;
}

Prediction predicted(const Json& options, const Cluster& cluster) {
  const ExperimentOptions resolved = resolve_for(options, cluster);
  return predict(PlannedModel(resolved, resolved.seq_length, cluster.machine), resolved, cluster);
}

Json sharded(const char* prefetch, bool forward) {
  return {{"model", "llama3.2-1b"},
          {"batch_size", 2},
          {"seq_length", 512},
          {"parallel", "fsdp"},
          {"dtype", "float32"},
          {"param_dtype", "bfloat16"},
          {"backward_prefetch", prefetch},
          {"forward_prefetch", forward}};
}

// As the engine's own choice does, by layers of single blocks. An H200 held 15.46 GiB of kept rows
// and inputs under 16,000 MiB where all blocks but the last few had changed.
TEST(Prediction, AnEnginesBudgetIsFilledBlockByBlock) {
  const auto peak_with = [](int budget_mb) {
    Json options = sharded("pre", true);
    options.update({{"model", "llama3.1-8b"},
                    {"task", "classify"},
                    {"mode", "auto"},
                    {"optimizer", "sgd"},
                    {"seq_length", 1024},
                    {"memory_budget_mb", budget_mb}});
    return predicted(options, cluster_of(1)).memory.peak;
  };
  constexpr double kMb = 1 << 20;
  double before = peak_with(10'000);
  for (const int budget_mb : {12'000, 13'000, 14'000, 15'000}) {
    const double peak = peak_with(budget_mb);
    EXPECT_GT(peak, before + 400 * kMb) << budget_mb;
    EXPECT_LT(peak, before + 2'200 * kMb) << budget_mb;
    before = peak;
  }
}

// Plain layers on the CPU: the same walk that predicts a GPU's, with other activations. The
// tolerance is that of the block's moments, which the walk knows by groups of layers.
TEST(Prediction, PeakMemoryIsWhatAStepHolds) {
  for (const char* model : {"llama3-tiny", "dit-tiny"}) {
    for (const char* mode : {"none", "bookkeeping", "flash"}) {
      for (const Json& extra :
           {Json{{"parallel", "none"}}, Json{{"parallel", "fsdp"}, {"world", "fake:2"}},
            Json{{"checkpointing", "block"}}, Json{{"lora_rank", 2}}, Json{{"grad_accum", 3}},
            Json{{"grad_accum", 3}, {"parallel", "fsdp"}}}) {
        Json options{{"model", model},   {"mode", mode},     {"batch_size", 8},
                     {"seq_length", 64}, {"num_layers", 4},  {"optimizer", "adam"},
                     {"seed", 1},        {"iters", 1},       {"warmup", 1},
                     {"device", "cpu"},  {"profile", "off"}, {"link", "instant"}};
        if (!extra.contains("world")) options.erase("link");
        options.update(extra);
        ExperimentOptions asked;
        experiment::experiment_schema().assign_all(&asked, options);
        const records::Result result = experiment::measure_experiment(asked);
        ASSERT_EQ(result.status, "ok");
        const Prediction plan =
            predicted(options, cluster_of(extra.contains("world") ? 2 : 1, /*is_gpu=*/false));
        EXPECT_NEAR(plan.memory.peak / result.metrics.peak_memory_bytes, 1, 0.10)
            << model << " " << mode << " " << extra.dump();
      }
    }
  }
}

// The same for a head whose scores exist in chunks, in a model that has little else.
TEST(Prediction, PeakMemoryOfAHeadInChunksIsWhatAStepHolds) {
  for (const char* mode : {"none", "bookkeeping", "flash"}) {
    for (const Json& extra :
         {Json{{"parallel", "none"}}, Json{{"parallel", "fsdp"}, {"world", "fake:2"}},
          Json{{"checkpointing", "block"}}, Json{{"lora_rank", 2}}, Json{{"batch_size", 1}},
          Json{{"tie_embeddings", "yes"}}}) {
      Json options{{"model", "llama3-tiny"}, {"task", "lm"},     {"mode", mode},
                   {"batch_size", 2},        {"iters", 1},       {"seq_length", 256},
                   {"num_layers", 2},        {"warmup", 1},      {"vocab_size", 4000},
                   {"optimizer", "sgd"},     {"seed", 1},        {"head_chunk", 64},
                   {"device", "cpu"},        {"profile", "off"}, {"link", "instant"}};
      if (!extra.contains("world")) options.erase("link");
      options.update(extra);
      const Cluster cluster = cluster_of(extra.contains("world") ? 2 : 1, /*is_gpu=*/false);
      ExperimentOptions asked;
      experiment::experiment_schema().assign_all(&asked, options);
      const records::Result result = experiment::measure_experiment(asked);
      ASSERT_EQ(result.status, "ok");
      const double planned = predicted(options, cluster).memory.peak;
      EXPECT_NEAR(planned / result.metrics.peak_memory_bytes, 1, 0.10)
          << mode << " " << extra.dump() << ": " << planned;
      options["head_chunk"] = 0;
      EXPECT_LT(planned, 0.8 * predicted(options, cluster).memory.peak)
          << mode << " " << extra.dump();
    }
  }
}

// What runs before the first layer that is trained keeps nothing, and backward does not come there.
TEST(Prediction, FrozenBlocksCostTheirForwardAlone) {
  for (const char* mode : {"none", "bookkeeping", "flash"}) {
    double step_ms = 1e9, peak = 1e18;
    for (const char* trained : {"", "score*,model.layers.2.*,model.layers.3.*", "score*"}) {
      for (const Json& extra :
           {Json{{"parallel", "none"}}, Json{{"parallel", "fsdp"}, {"world", "fake:2"}},
            Json{{"checkpointing", "block"}}}) {
        Json options{{"model", "llama3-tiny"},
                     {"task", "classify"},
                     {"mode", mode},
                     {"trained", trained},
                     {"batch_size", 8},
                     {"seq_length", 64},
                     {"num_layers", 4},
                     {"seed", 1},
                     {"iters", 1},
                     {"warmup", 1},
                     {"device", "cpu"},
                     {"profile", "off"}};
        options.update(extra);
        if (extra.contains("world")) options["link"] = "instant";
        ExperimentOptions asked;
        experiment::experiment_schema().assign_all(&asked, options);
        const records::Result result = experiment::measure_experiment(asked);
        ASSERT_EQ(result.status, "ok");
        const Prediction plan =
            predicted(options, cluster_of(extra.contains("world") ? 2 : 1, /*is_gpu=*/false));
        EXPECT_NEAR(plan.memory.peak / result.metrics.peak_memory_bytes, 1, 0.10)
            << mode << " " << trained << " " << extra.dump();
        if (extra.contains("parallel") && !extra.contains("world")) {
          EXPECT_LT(plan.time.step_ms, step_ms) << trained;
          EXPECT_LT(plan.memory.peak, peak) << trained;
          step_ms = plan.time.step_ms;
          peak = plan.memory.peak;
        }
      }
    }
  }
}

// Blocks are planned as most of them are trained.
TEST(Prediction, OneFrozenBlockIsNotAll) {
  const auto step_ms = [](const char* frozen) {
    return predicted({{"model", "llama3.2-1b"}, {"seq_length", 512}, {"frozen", frozen}},
                     cluster_of(1))
        .time.step_ms;
  };
  const double none = step_ms(""), all = step_ms("model.layers.*");
  EXPECT_LT(all, 0.8 * none);
  for (const char* one : {"model.layers.0.*", "model.layers.5.*", "model.layers.15.*"})
    EXPECT_GT(step_ms(one), 0.95 * none) << one;
}

TEST(Prediction, OwnersAddUpToThePeak) {
  const Prediction plan = predicted(sharded("pre", true), cluster_of(8));
  double sum = 0;
  for (const double bytes : plan.memory.at_peak) sum += bytes;
  EXPECT_NEAR(sum, plan.memory.peak, 1);
  EXPECT_GE(plan.memory.peak, plan.memory.fixed);
  double phases = 0;
  for (const auto& [name, ms] : plan.time.phases_ms) phases += ms;
  EXPECT_NEAR(phases, plan.time.step_ms, 0.02 * plan.time.step_ms);
}

TEST(Prediction, PrefetchingHidesCommunication) {
  Cluster slow = cluster_of(8);
  slow.link = "pcie5";
  const Prediction ahead = predicted(sharded("pre", true), slow);
  const Prediction at_use = predicted(sharded("none", false), slow);
  EXPECT_LT(ahead.time.exposed_ms, at_use.time.exposed_ms);
  EXPECT_LT(ahead.time.step_ms, at_use.time.step_ms);
}

TEST(Prediction, AStragglerHoldsUpEveryRank) {
  Cluster even = cluster_of(4), uneven = cluster_of(4);
  even.slowness = {0, 0, 0, 0};
  uneven.slowness = {0, 0, 0, 0.5};
  const double alone = predicted(sharded("pre", true), cluster_of(4)).time.step_ms;
  EXPECT_NEAR(predicted(sharded("pre", true), even).time.step_ms, alone, 1e-6);
  EXPECT_GT(predicted(sharded("pre", true), uneven).time.step_ms, 1.2 * alone);
}

TEST(Prediction, MoreRanksHoldLess) {
  const double two = predicted(sharded("pre", true), cluster_of(2)).memory.peak;
  EXPECT_LT(predicted(sharded("pre", true), cluster_of(8)).memory.peak, two);
  Json options = sharded("pre", true);
  options["checkpointing"] = "block";
  options["seq_length"] = 8192;
  Json plain = options;
  plain["checkpointing"] = "none";
  const Prediction with = predicted(options, cluster_of(2)),
                   without = predicted(plain, cluster_of(2));
  EXPECT_LT(with.memory.peak, 0.6 * without.memory.peak);
  EXPECT_GT(with.time.step_ms, without.time.step_ms);
}

TEST(Prediction, AutoRunsBackwardTwiceOnlyWhereABudgetWasGiven) {
  Json options = sharded("pre", true);
  options["mode"] = "auto";
  options["batch_size"] = 256;
  EXPECT_FALSE(predicted(options, cluster_of(1)).two_passes);
  options["memory_budget_mb"] = 64;
  EXPECT_TRUE(predicted(options, cluster_of(1)).two_passes);
}

// Where segments do not grow; those that do have room for it once.
TEST(Prediction, FitsOnlyWithRoomForTheLargestTensorTwice) {
  Json options = sharded("pre", true);
  options["task"] = "lm";
  options["batch_size"] = 64;
  Cluster cluster = cluster_of(1);
  cluster.machine.fixed_segments = true;
  const double peak = predicted(options, cluster).most_bytes;
  const double scores = 64.0 * 512 * 128256 * 2;
  cluster.memory_bytes = 1.03 * peak + 0.5 * scores;
  EXPECT_FALSE(predicted(options, cluster).fits);
  Cluster grows = cluster;
  grows.machine.fixed_segments = false;
  EXPECT_TRUE(predicted(options, grows).fits);
  cluster.memory_bytes = 1.04 * peak + scores;
  EXPECT_TRUE(predicted(options, cluster).fits);
}

// Of many micro-batches some are simulated; whoever wants a trace gets all of them.
TEST(Prediction, ManyMicroBatchesTakeAsLongAsIfEachWasSimulated) {
  for (const int64_t ranks : {1, 8}) {
    Json options = sharded("pre", true);
    options["grad_accum"] = 100;
    if (ranks == 1) options = {{"model", "llama3.2-1b"}, {"seq_length", 512}, {"grad_accum", 100}};
    const Cluster cluster = cluster_of(ranks);
    const ExperimentOptions resolved = resolve_for(options, cluster);
    const PlannedModel model(resolved, resolved.seq_length, cluster.machine);
    std::vector<TraceSpan> spans;
    const TimePlan some = predict(model, resolved, cluster).time,
                   all = predict(model, resolved, cluster, &spans).time;
    EXPECT_NEAR(some.step_ms, all.step_ms, 1e-3 * all.step_ms);
    EXPECT_NEAR(some.compute_ms, all.compute_ms, 1e-3 * all.compute_ms);
    EXPECT_NEAR(some.communication_ms, all.communication_ms, 1e-3 * all.communication_ms + 1e-9);
    double phases = 0;
    for (const auto& [name, ms] : some.phases_ms) phases += ms;
    EXPECT_NEAR(phases, some.step_ms, 1e-3 * some.step_ms);
  }
}

TEST(MachineProfileFile, IsReadBackAndNamesWhatIsWrong) {
  const MachineProfile profile = machine_of(true);
  const Json json = to_json(profile);
  EXPECT_EQ(to_json(profile_from_json(json, "again")), json);
  // Factors that nobody has set stay the program's own, which may learn more.
  EXPECT_FALSE(json.contains("in_step")) << json["in_step"];
  MachineProfile own = profile;
  own.in_step.launch = 1.25;
  EXPECT_EQ(to_json(own)["in_step"], (Json{{"launch", 1.25}}));
  EXPECT_EQ(profile_from_json(to_json(own), "again").in_step.launch, 1.25);
  // So do the ranges of predictions by a calibration.
  own.device = "NVIDIA H200";
  own.is_measured = true;
  Json calibrated = to_json(own);
  EXPECT_FALSE(calibrated.contains("checked"));
  const Checked checked = profile_from_json(calibrated, "again").checked;
  EXPECT_LT(checked.time_of(0.9).low, checked.time_of(0.2).low);
  EXPECT_EQ(MachineProfile().checked.time_of(0.2).points, 0);
  for (const char* other : {"NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB"}) {
    calibrated["device"] = other;
    EXPECT_TRUE(profile_from_json(calibrated, "again").checked.time.empty()) << other;
  }
  calibrated["checked"]["time"] = {{0.5, 1}};
  EXPECT_THROW(profile_from_json(calibrated, "file.json"), UsageError);
  Json misspelt = json;
  misspelt["link"] = "nvlnk";
  EXPECT_THROW(profile_from_json(misspelt, "file.json"), UsageError);
  misspelt["link"] = "nvlink3";
  EXPECT_EQ(to_json(profile_from_json(misspelt, "again"))["link"], "nvlink3");
  Json broken = json;
  broken["element_gb_per_s"] = -1;
  try {
    profile_from_json(broken, "file.json");
    FAIL() << "a negative rate was taken";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("file.json"), std::string::npos) << text;
    EXPECT_NE(text.find("element_gb_per_s"), std::string::npos) << text;
  }
  // A measured shape has its own rate, whatever the others are.
  EXPECT_NEAR(product_seconds(profile.rates("bfloat16"), 64, 64, 64), 2.0 * 64 * 64 * 64 / 5e12,
              1e-9);
}

}  // namespace
}  // namespace moonshard::plan
