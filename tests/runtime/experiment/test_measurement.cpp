#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/experiment/experiment.h"
#include "runtime/experiment/measurement.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/timeline.h"
#include "runtime/profile/utilization.h"
#include "runtime/records/csv.h"
#include "runtime/records/schema_json.h"
#include "runtime/train/step_graph.h"
#include "runtime/train/step_watch.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::experiment {
namespace {

ExperimentOptions tiny(const std::string& mode) {
  ExperimentOptions options;
  options.model = "llama3-tiny";
  options.device = "cpu";
  options.mode = mode;
  options.batch_size = 2;
  options.seq_length = 64;
  options.optimizer = "adam";
  options.iters = 2;
  return options;
}

std::map<std::string, int64_t> owners(const Json& rows) {
  std::map<std::string, int64_t> bytes;
  for (const Json& row : rows) bytes[row["owner"]] = row["bytes"];
  return bytes;
}

class EveryEngine : public testing::TestWithParam<const char*> {};

TEST_P(EveryEngine, OwnersAddUpToThePeakAndLittleIsUnexplained) {
  const Json record = run_experiment(tiny(GetParam()));
  ASSERT_EQ(record["status"], "ok");
  const Json& memory = record["memory"];
  const int64_t peak = memory["peak_bytes"];
  int64_t sum = 0;
  for (const Json& row : memory["breakdown"]) {
    EXPECT_GE(row["bytes"].get<int64_t>(), 0) << row.dump();
    sum += row["bytes"].get<int64_t>();
  }
  EXPECT_EQ(sum, peak);
  EXPECT_EQ(peak, record["metrics"]["peak_memory_bytes"]);
  EXPECT_LE(memory["rest_bytes"].get<int64_t>(), peak / 50) << memory["breakdown"].dump(1);
  const auto at_peak = owners(memory["breakdown"]), after = owners(memory["after_step"]);
  EXPECT_EQ(at_peak.at("parameters"), record["metrics"]["parameter_bytes"]);
  EXPECT_EQ(after.at("optimizer_state"), record["metrics"]["optimizer_bytes"]);
  EXPECT_EQ(after.count("gradients"), 0u) << "gradients do not outlive the step";
  EXPECT_GT(at_peak.count("activations") + at_peak.count("engine_kept"), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ledger, EveryEngine,
                         testing::Values("none", "materialize", "ghost", "flash", "bookkeeping",
                                         "flash_bookkeeping", "auto"));

TEST(Ledger, FrozenParametersInShardsAreParameters) {
  for (const bool keeps : {false, true}) {
    auto options = tiny("auto");
    options.lora_rank = 4;
    options.parallel = "fsdp";
    options.keep_frozen = keeps;
    const Json record = run_experiment(options);
    ASSERT_EQ(record["status"], "ok");
    const Json& memory = record["memory"];
    EXPECT_LE(memory["rest_bytes"].get<int64_t>(), memory["peak_bytes"].get<int64_t>() / 50)
        << memory["breakdown"].dump(1);
    EXPECT_EQ(owners(memory["after_step"]).at("parameters"), record["metrics"]["parameter_bytes"]);
  }
}

TEST(Ledger, NamesWhatEachEngineNeeds) {
  const auto most = [](const std::string& mode, const std::string& owner) {
    const Json timeline = run_experiment(tiny(mode))["memory"]["timeline"]["owners"];
    int64_t bytes = 0;
    if (timeline.contains(owner))
      for (const Json& value : timeline[owner]) bytes = std::max(bytes, value.get<int64_t>());
    return bytes;
  };
  EXPECT_GT(most("ghost", "temporaries_ggt"), 0);
  EXPECT_GT(most("ghost", "temporaries_aat"), 0);
  EXPECT_EQ(most("none", "temporaries_ggt"), 0);
  EXPECT_EQ(most("none", "engine_kept"), 0);
  EXPECT_GT(most("bookkeeping", "engine_kept"), 10 * most("ghost", "engine_kept"));
  EXPECT_GT(most("bookkeeping", "norm_samples"), 0);
}

TEST(Measurement, SeveralWatchedStepsMakeOneTimeline) {
  ExperimentOptions options = tiny("flash");
  options.watch_steps = 3;
  const Json timeline = run_experiment(options)["memory"]["timeline"];
  ASSERT_EQ(timeline["step_begins_ms"].size(), 3u);
  EXPECT_EQ(timeline["step_begins_ms"][0], 0);
  EXPECT_LT(timeline["step_begins_ms"][1], timeline["step_begins_ms"][2]);
  const auto ms = timeline["ms"].get<std::vector<double>>();
  EXPECT_TRUE(std::is_sorted(ms.begin(), ms.end()));
  EXPECT_LE(ms.size(), profile::kTimelineSamples + 3);
  for (const auto& [owner, values] : timeline["owners"].items())
    EXPECT_EQ(values.size(), ms.size()) << owner;
  EXPECT_FALSE(run_experiment(tiny("flash"))["memory"]["timeline"].contains("step_begins_ms"));
}

// A graph's gradients, which lie in its memory from step to step, are not beside those of a step
// that is watched.
TEST(Measurement, TheWatchedStepHasNoGraphBesideIt) {
  const train::ImitatedGraphs imitated;
  ExperimentOptions options = tiny("bookkeeping");
  options.compile = "yes";
  options.warmup = 3;
  const Json record = run_experiment(options);
  ASSERT_TRUE(record["time"]["phases_ms"].contains("graph")) << record["time"].dump();
  options.compile = "no";
  EXPECT_EQ(record["memory"]["peak_bytes"], run_experiment(options)["memory"]["peak_bytes"]);
}

// The root is done when only its head is trained: gathered again for the embedding, which needs no
// backward, it would be read while it is updated. Nor does backward come to frozen blocks before
// the first that is trained.
TEST(Measurement, PrefetchingGathersNoMoreThanIsUsed) {
  for (const char* mode : {"none", "bookkeeping", "flash"}) {
    for (const bool adapters : {true, false}) {
      const auto gathers = [&](const char* prefetch) {
        ExperimentOptions options = tiny(mode);
        options.parallel = "fsdp";
        options.world = "fake:2";
        options.num_layers = 4;
        options.lora_rank = adapters ? 2 : 0;
        options.trained = adapters ? "" : "*layers.3.*";
        options.backward_prefetch = prefetch;
        const Json record = run_experiment(options);
        double count = 0;
        for (const Json& row : record["comm"])
          if (row["operation"] == "all_gather") count += row["count"].get<double>();
        return count;
      };
      const double on_demand = gathers("none");
      EXPECT_GT(on_demand, 0) << mode;
      EXPECT_EQ(gathers("pre"), on_demand) << mode << " " << adapters;
      EXPECT_EQ(gathers("post"), on_demand) << mode << " " << adapters;
    }
  }
}

TEST(Measurement, MemoryIsAveragedOverTime) {
  const Json metrics = run_experiment(tiny("none"))["metrics"];
  EXPECT_GT(metrics["avg_memory_bytes"], metrics["parameter_bytes"]);
  EXPECT_LT(metrics["avg_memory_bytes"], metrics["peak_memory_bytes"]);
}

TEST(Measurement, TimedLayersHaveTheirSizes) {
  ExperimentOptions options = tiny("ghost");
  options.profile = "layers";
  bool found = false;
  const Json record = run_experiment(options);
  for (const Json& row : record["layers"]) {
    if (row["layer"] != "model.layers.0.mlp.up_proj") continue;
    found = true;
    EXPECT_EQ(row["in_features"], 128);
    EXPECT_EQ(row["out_features"], 384);
    EXPECT_EQ(row["parameters"], 128 * 384);
    EXPECT_EQ(row["tokens"], 2 * 64);
  }
  EXPECT_TRUE(found);
}

TEST(Measurement, APointWithoutMemoryHasItsBreakdownRanksAndAdvice) {
  ExperimentOptions options = tiny("bookkeeping");
  options.parallel = "fsdp";
  options.world = "fake:4";
  options.batch_size = 16;
  options.seq_length = 512;
  options.memory_limit_mb = 100;
  const Json record = run_experiment(options);
  ASSERT_EQ(record["status"], "oom");
  EXPECT_EQ(record["sharding"]["world"], 4);
  EXPECT_EQ(record["sharding"]["fake"], true);
  EXPECT_FALSE(record["modelled"].get<std::string>().empty());
  EXPECT_EQ(record["memory_stages"].back()["stage"], "after model creation");
  int64_t sum = 0;
  for (const Json& row : record["memory"]["breakdown"]) sum += row["bytes"].get<int64_t>();
  EXPECT_EQ(sum, record["memory"]["peak_bytes"]);
  EXPECT_GT(sum, 50 << 20) << "of a limit of 100 MiB";
  EXPECT_EQ(record["memory"]["peak_phase"], record["phase"]);
  ASSERT_FALSE(record["savings"].empty());
  // Who follows the advice has room: it is of the whole step, not of the moment that failed.
  std::string change;
  for (const Json& saving : record["savings"])
    if (saving["change"].get<std::string>().starts_with("batch_size = ")) change = saving["change"];
  ASSERT_FALSE(change.empty()) << record["savings"].dump();
  ExperimentOptions smaller = options;
  smaller.batch_size = std::stoll(change.substr(change.find('=') + 1));
  EXPECT_EQ(run_experiment(smaller)["status"], "ok") << change;
  options.profile = "off";
  EXPECT_FALSE(run_experiment(options).contains("savings")) << "nobody asked to look";
}

// Rows of every sample are most of the peak, which comes after the moment that fails in backward:
// a third of what is held then are activations.
TEST(Measurement, WhatSavesNothingOfThePeakIsNoAdvice) {
  ExperimentOptions options = tiny("materialize");
  options.model = "qwen2.5-tiny";
  options.batch_size = 32;
  options.seq_length = 64;
  options.optimizer = "adamw";
  options.memory_limit_mb = 70;
  const Json record = run_experiment(options);
  ASSERT_EQ(record["status"], "oom");
  ASSERT_FALSE(record["savings"].empty());
  for (const Json& saving : record["savings"])
    EXPECT_NE(saving["change"], "checkpointing = block") << saving;
}

TEST(Measurement, TheWholeModelMayBeMadeFirst) {
  ExperimentOptions options = tiny("none");
  options.parallel = "fsdp";
  options.world = "fake:4";
  const auto after_model = [&] {
    const Json record = run_experiment(options);
    for (const Json& row : record["memory_stages"])
      if (row["stage"] == "after model creation") return row["allocated_bytes"].get<int64_t>();
    return int64_t{0};
  };
  const int64_t parts = after_model();
  options.whole_first = true;
  const int64_t whole = after_model();
  EXPECT_GT(whole, 3 * (parts - 2048)) << "a quarter of the parameters, and the data";
  const Json record = run_experiment(options);
  EXPECT_EQ(record["memory_stages"][3]["stage"], "after wrapping");
  EXPECT_EQ(record["memory_stages"][3]["allocated_bytes"], parts);
}

TEST(Measurement, NormsBeforeTheirSumOverRanksAreKept) {
  ExperimentOptions options = tiny("flash");
  options.parallel = "fsdp";
  options.world = "fake:2";
  EXPECT_FALSE(run_experiment(options).contains("norm_sum"));
  options.norm_reduce = "sum";
  const Json rows = run_experiment(options)["norm_sum"];
  ASSERT_EQ(rows.size(), 1u) << "the other rank is modelled";
  EXPECT_EQ(rows[0]["before"].size(), 2u);
  EXPECT_EQ(rows[0]["after"].size(), 2u);
}

TEST(Measurement, TheLoadOfTheMachineIsInTheRecord) {
  const Json load = run_experiment(tiny("none"))["load"];
  EXPECT_GE(load["cores"], 1);
  EXPECT_GE(load["load_before"], 0);
}

TEST(Ledger, WhatCheckpointingComputesAgainAreActivations) {
  ExperimentOptions options = tiny("none");
  options.checkpointing = "block";
  options.seq_length = 256;
  const auto most = [](const Json& record, const char* owner) {
    int64_t bytes = 0;
    for (const Json& value : record["memory"]["timeline"]["owners"][owner])
      bytes = std::max(bytes, value.get<int64_t>());
    return bytes;
  };
  const Json record = run_experiment(options);
  EXPECT_GT(most(record, "activations"), most(record, "output_gradients"));
}

TEST(Ledger, PlainTrainingHasNoEngineAndGradientsAreGradients) {
  const auto at_peak = owners(run_experiment(tiny("none"))["memory"]["breakdown"]);
  EXPECT_EQ(at_peak.count("engine_temporaries"), 0u);
  EXPECT_EQ(at_peak.count("engine_kept"), 0u);
}

TEST(Measurement, StagesOfPhasesHaveTheirOwnReadings) {
  ExperimentOptions options = tiny("none");
  options.grad_accum = 2;
  const Json record = run_experiment(options);
  ASSERT_FALSE(record.at("memory_stages").empty());
  for (const Json& stage : record.at("memory_stages")) {
    EXPECT_GE(stage["reserved_bytes"].get<int64_t>(), stage["allocated_bytes"].get<int64_t>())
        << stage.dump();
    EXPECT_GT(stage["rss_bytes"].get<int64_t>(), 0);
  }
}

TEST(Measurement, PerLayerClippingCountsItsSumsNotAsStacking) {
  ExperimentOptions options = tiny("flash_bookkeeping");
  options.seq_length = 256;
  options.clipping = "per_layer";
  // Sums are as much work as norms, stacking is next to none; a busy machine may hide that once.
  bool seen = false;
  for (int attempt = 0; attempt < 5 && !seen; ++attempt) {
    const Json norms = run_experiment(options)["norms_ms"];
    seen = norms["stacking"].get<double>() < 0.5 * norms["local"].get<double>();
  }
  EXPECT_TRUE(seen);
}

TEST(Ledger, TheTimelineFollowsThePhasesAndHasThePeak) {
  const Json memory = run_experiment(tiny("flash"))["memory"];
  const Json& timeline = memory["timeline"];
  ASSERT_LE(timeline["ms"].size(), 401u);
  ASSERT_EQ(timeline["ms"].size(), timeline["total"].size());
  int64_t most = 0;
  for (const Json& total : timeline["total"]) most = std::max(most, total.get<int64_t>());
  EXPECT_EQ(most, memory["peak_bytes"].get<int64_t>());
  std::vector<std::string> phases;
  for (const Json& phase : memory["phases"]) phases.push_back(phase["phase"]);
  EXPECT_THAT(phases, testing::ElementsAre("data", "forward", "backward", "clip_factors",
                                           "clipped_sum", "second_backward", "update"));
}

TEST(Measurement, ProfileOffLooksAtNothingMore) {
  ExperimentOptions options = tiny("ghost");
  options.profile = "off";
  const Json record = run_experiment(options);
  EXPECT_FALSE(record.contains("memory"));
  EXPECT_FALSE(record.contains("norms_ms"));
  EXPECT_FALSE(record["metrics"].contains("profiler_overhead_percent"));
  EXPECT_TRUE(record["metrics"].contains("cpu_percent"));
}

TEST(Measurement, LayersHaveTheTimeOfTheirNorms) {
  ExperimentOptions options = tiny("ghost");
  options.profile = "layers";
  const Json record = run_experiment(options);
  double sum = 0;
  for (const Json& row : record["layers"]) {
    EXPECT_FALSE(row["kind"].get<std::string>().empty());
    sum += row["norm_ms"].get<double>();
  }
  EXPECT_GT(record["layers"].size(), 10u);
  EXPECT_NEAR(sum, record["norms_ms"]["local"].get<double>(), 1e-6);
}

TEST(Measurement, CommunicationOfAModelledWorldIsWorkAndWaiting) {
  ExperimentOptions options = tiny("none");
  options.parallel = "fsdp";
  options.world = "fake:4";
  options.link = "ethernet10";
  const Json record = run_experiment(options);
  ASSERT_TRUE(record.contains("comm"));
  double work = 0;
  for (const Json& row : record["comm"]) {
    EXPECT_GE(row["exposed_ms"].get<double>(), 0);
    work += row["work_ms"].get<double>();
    // The link's figures: 1.1 GB/s, 60 us a collective; a ring sends three quarters of a whole.
    if (row["operation"] == "all_gather" || row["operation"] == "reduce_scatter") {
      EXPECT_NEAR(
          row["work_ms"].get<double>(),
          row["count"].get<double>() * 0.06 + row["bytes"].get<double>() * 0.75 / 1.1e9 * 1000,
          1e-3)
          << row.dump();
    }
  }
  EXPECT_NEAR(record["metrics"]["comm_work_ms"].get<double>(), work, 1e-9);
}

TEST(Measurement, NormsOfTheDetailedStepAreCountedInBinsAroundTheBound) {
  ExperimentOptions options = tiny("ghost");
  options.grad_accum = 3;
  options.max_grad_norm = 0.25;
  const Json privacy = run_experiment(options)["privacy"];
  const Json& histogram = privacy["norms_histogram"];
  const std::vector<double> edges = histogram["edges"], counts = histogram["counts"];
  ASSERT_EQ(edges.size(), counts.size() + 1);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0.0), 2 * 3);
  EXPECT_TRUE(std::is_sorted(edges.begin(), edges.end()));
  EXPECT_EQ(histogram["max_grad_norm"], 0.25);
  EXPECT_EQ(histogram["left_out"], 0);
  // What epsilon could be computed from, and why it is not.
  EXPECT_EQ(privacy["sampler"], "fixed");
  EXPECT_EQ(privacy["noise_multiplier"], 1.0);
  EXPECT_EQ(privacy["steps"], 1 + 2 + 1) << "warm-up, measured, detailed";
  EXPECT_FALSE(privacy.contains("sampling_rate"));
  EXPECT_TRUE(privacy["epsilon"].is_null());
}

TEST(Measurement, PlainTrainingAndUnwatchedStepsHaveNoNorms) {
  EXPECT_FALSE(run_experiment(tiny("none"))["privacy"].contains("norms_histogram"));
  ExperimentOptions options = tiny("ghost");
  options.profile = "off";
  EXPECT_FALSE(run_experiment(options)["privacy"].contains("norms_histogram"));
}

TEST(NormHistogram, HasPowersOfTwoAsEdgesAndEveryNormInItsBin) {
  const auto bins = [](const std::vector<double>& norms) {
    return records::json_of(norm_histogram(norms, 1));
  };
  const Json narrow = bins({1.0, 1.5, 2.0});
  EXPECT_EQ(narrow["counts"].size(), 40u);
  EXPECT_EQ(narrow["edges"].front(), 1.0);
  EXPECT_EQ(narrow["edges"].back(), 2.0);
  EXPECT_EQ(narrow["counts"].front(), 1);
  EXPECT_EQ(narrow["counts"].back(), 1) << "the largest stands on the last edge";
  const Json one = bins({4.0});
  EXPECT_EQ(one["edges"].front(), 4.0);
  EXPECT_EQ(one["edges"].back(), 8.0);
  const Json wide = bins({0.3, 5.0, 0.0, NAN, INFINITY});  // 0.25 to 8: five octaves
  EXPECT_EQ(wide["counts"].size(), 40u);
  EXPECT_EQ(wide["left_out"], 3);
  EXPECT_EQ(wide["edges"].front(), 0.25);
  EXPECT_EQ(wide["edges"].back(), 8.0);
  EXPECT_EQ(wide["edges"][8], 0.5);
  EXPECT_EQ(wide["counts"][2], 1) << "0.3 is log2 -1.737: in the third eighth above 0.25";
  EXPECT_EQ(wide["counts"][34], 1) << "5 is log2 2.32";
  const Json extreme = bins({1e-300, 1e299});
  EXPECT_LE(extreme["counts"].size(), 40u);
  EXPECT_GE(extreme["edges"].back().get<double>(), 1e299);
  EXPECT_EQ(bins({0.0})["left_out"], 1);
  EXPECT_FALSE(bins({0.0}).contains("counts"));
  EXPECT_TRUE(bins({}).empty());
}

TEST(Measurement, OutOfMemorySaysPhaseAskedAndFree) {
  ExperimentOptions options = tiny("materialize");
  options.batch_size = 16;
  options.memory_limit_mb = 24;
  const Json record = run_experiment(options);
  ASSERT_EQ(record["status"], "oom");
  EXPECT_THAT(record["phase"].get<std::string>(), testing::AnyOf("forward", "backward"));
  EXPECT_GT(record["bytes_asked"].get<int64_t>(), record["bytes_free"].get<int64_t>());
}

TEST(Measurement, TraceHasPhasesAndRank) {
  const TemporaryFolder folder;
  ExperimentOptions options = tiny("flash_bookkeeping");
  options.profile = "trace";
  ASSERT_EQ(run_experiment(options, {}, folder.path())["status"], "ok");
  const auto file = folder.path() / profile::trace_file_name(0);
  ASSERT_TRUE(std::filesystem::exists(file));
  EXPECT_FALSE(std::filesystem::exists(file.string() + ".kineto"));
  const auto plain = folder.path() / "trace.json";
  std::filesystem::copy(file, folder.path() / "copy.json.gz");
  const std::string unpack = file.extension() == ".gz" ? "zcat " : "cat ";
  ASSERT_EQ(std::system((unpack + file.string() + " > " + plain.string()).c_str()), 0);
  const Json trace = read_json_file(plain);
  EXPECT_EQ(trace["distributedInfo"]["rank"], 0);
  std::set<std::string> names;
  for (const Json& event : trace["traceEvents"])
    if (event.contains("name") && event["name"].is_string()) names.insert(event["name"]);
  for (const char* phase : {"data", "forward", "backward", "clipped_sum", "update"})
    EXPECT_TRUE(names.contains(phase)) << phase;
  EXPECT_TRUE(names.contains("aten::linear"));
  EXPECT_TRUE(names.contains("[memory]"));
}

TEST(Overlap, QueuedCollectivesDoNotCountTwiceAndWaitingIsExposed) {
  using profile::Span;
  const std::vector<Span> spans{{"comm", "all_gather a", 0, 10},
                                {"comm", "all_gather b", 1, 18},  // asked for while a runs
                                {"exposed", "all_gather a", 6, 10},
                                {"comm", "reduce_scatter a", 20, 24},
                                {"host comm", "all_reduce losses", 21, 22},
                                {"comm", "broadcast a", 30, 90, 0, 5}};  // modelled: 5 ms
  const auto rows = profile::collective_times(spans);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_DOUBLE_EQ(rows[3].work_ms, 5);
  EXPECT_EQ(rows[0].operation, "all_gather");
  EXPECT_EQ(rows[0].count, 2);
  EXPECT_DOUBLE_EQ(rows[0].work_ms, 18);
  EXPECT_DOUBLE_EQ(rows[0].exposed_ms, 4);
  EXPECT_NEAR(rows[0].overlap_percent(), 100 * 14.0 / 18, 1e-9);
  EXPECT_DOUBLE_EQ(rows[1].overlap_percent(), 100);
  EXPECT_EQ(rows[2].operation, "host all_reduce");
}

TEST(Overlap, GroupsDoNotWaitForEachOther) {
  const auto rows = profile::collective_times(
      {{"comm", "reduce_scatter a", 0, 10}, {"comm statistics", "all_reduce losses", 2, 5}});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_DOUBLE_EQ(rows[0].work_ms, 10);
  EXPECT_DOUBLE_EQ(rows[1].work_ms, 3);
}

TEST(PeakFlops, AreOfTheGpuThatIsNamed) {
  EXPECT_DOUBLE_EQ(profile::peak_flops_of("NVIDIA H200", "bfloat16"), 989.4e12);
  EXPECT_DOUBLE_EQ(profile::peak_flops_of("NVIDIA H100 80GB HBM3", "float32"), 66.9e12);
  EXPECT_DOUBLE_EQ(profile::peak_flops_of("NVIDIA H100 PCIe", "bfloat16"), 756e12);
  EXPECT_DOUBLE_EQ(profile::peak_flops_of("NVIDIA A100-SXM4-80GB", "bfloat16"), 311.8e12);
  for (const char* unknown : {"NVIDIA L40", "NVIDIA A10G", "NVIDIA RTX A4000"})
    EXPECT_EQ(profile::peak_flops_of(unknown, "bfloat16"), 0) << unknown;
}

TEST(PointTables, AreWholeAndQuoted) {
  const Json record = run_experiment(tiny("ghost"));
  std::map<std::string, std::string> tables;
  for (const auto& [name, text] : records::point_tables(record)) tables[name] = text;
  EXPECT_THAT(tables["steps.csv"], testing::HasSubstr("second_backward_ms"));
  EXPECT_EQ(std::count(tables["steps.csv"].begin(), tables["steps.csv"].end(), '\n'), 1 + 3);
  EXPECT_THAT(tables["memory.csv"], testing::HasSubstr("after model creation"));
  EXPECT_EQ(tables.count("comm.csv"), 0u);
}

}  // namespace
}  // namespace moonshard::experiment
