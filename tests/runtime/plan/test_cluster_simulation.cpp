// Simulated clusters: links that are shared, ranks that differ, and the records of a simulated run.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/plan/modelled_record.h"
#include "runtime/plan/plan_request.h"
#include "runtime/plan/program_run.h"
#include "runtime/records/folder_check.h"
#include "runtime/records/schema_json.h"
#include "tests/runtime/plan/test_machine.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::plan {
namespace {

MachineProfile simulated_machine() {
  return machine_with_round_rates("cuda", 1);
}

Cluster nodes_of(int64_t nodes, int64_t gpus) {
  Cluster cluster;
  cluster.machine = simulated_machine();
  cluster.nodes = nodes;
  cluster.gpus = gpus;
  return cluster;
}

Json asked_of(int64_t replicate, const char* mode = "none") {
  return {{"model", "llama3.2-1b"}, {"mode", mode},
          {"batch_size", 8},        {"seq_length", 1024},
          {"parallel", "fsdp"},     {"replicate", replicate},
          {"dtype", "float32"},     {"param_dtype", "bfloat16"}};
}

Prediction simulated(const Json& options, const Cluster& cluster) {
  const experiment::ExperimentOptions resolved = resolve_for(options, cluster);
  return predict(PlannedModel(resolved, resolved.seq_length, true), resolved, cluster);
}

TEST(LinkTraffic, TransfersAtOnceShareALink) {
  Topology topology{2, 1, {100, 0}, {10, 0}, 0};
  LinkTraffic links(topology, /*folded=*/false);
  const Route route = links.route_of({0, 1, 2}, 1);
  // 100 bytes alone need a second. The second comes at 0.5: both have half, and end at 1.5 and 2.
  EXPECT_EQ(links.start(0, route, 100), 0U);
  EXPECT_EQ(links.start(0.5, route, 100), 1U);
  EXPECT_EQ(links.next_end(), std::optional<size_t>(0));
  EXPECT_NEAR(links.now(), 1.5, 1e-9);
  EXPECT_EQ(links.next_end(), std::optional<size_t>(1));
  EXPECT_NEAR(links.now(), 2, 1e-9);
  EXPECT_FALSE(links.next_end());
}

TEST(LinkTraffic, RanksOfANodeShareItsUplink) {
  // Four GPUs a node; copies of a part are on one rank of each node: four rings at once.
  for (const auto& [nics, seconds] : {std::pair{4.0, 10.0}, {1.0, 40.0}, {2.0, 20.0}}) {
    const Topology topology{4, 2, {1000, 0}, {10, 0}, nics};
    for (const bool folded : {true, false}) {
      LinkTraffic links(topology, folded);
      std::vector<Route> routes;
      for (int64_t i = 0; i < (folded ? 1 : 4); ++i) routes.push_back(links.route_of({i, 4, 2}, 4));
      for (const Route& route : routes) links.start(0, route, 100);
      while (links.next_end()) {
      }
      EXPECT_NEAR(links.now(), seconds, 1e-6) << nics << (folded ? " folded" : "");
    }
  }
  // One ring through all of them has every adapter, up to what the GPUs' own ports carry.
  LinkTraffic links({4, 2, {30, 0}, {10, 0}, 4}, false);
  const Route all = links.route_of({0, 1, 8}, 1);
  links.start(0, all, 60);
  links.next_end();
  EXPECT_NEAR(links.now(), 2, 1e-9);
}

// A long transfer and two short ones behind it, of which the computation waits for the last.
TimePlan three_transfers(size_t at_once) {
  StepProgram program;
  program.begin_phase("forward");
  program.collective("long", GroupKind::All, Lane::Communication, 600, 1, 0);
  program.collective("short", GroupKind::All, Lane::Communication, 100, 1, 0);
  program.wait(program.collective("short", GroupKind::All, Lane::Communication, 100, 1, 0));
  TimeSituation situation;
  situation.ranks = 2;
  situation.topology = {2, 1, {100, 0}, {10, 0}, 0};
  situation.collectives_at_once = at_once;
  return ProgramRun(program, situation, 2, 0, nullptr).run();
}

TEST(SimulatedCluster, CollectivesInTurnsOrSideBySide) {
  const TimePlan in_turns = three_transfers(1);
  EXPECT_NEAR(in_turns.exposed_ms, 8000, 1e-6);
  EXPECT_NEAR(in_turns.communication_ms, 8000, 1e-6);
  // At half the rate each: the short ones end at 2 and 4 s, the long one still at 8.
  const TimePlan beside = three_transfers(2);
  EXPECT_NEAR(beside.exposed_ms, 4000, 1e-6);
  EXPECT_NEAR(beside.communication_ms, 8000, 1e-6);
  double work = 0;
  for (const CollectiveTime& kind : beside.collectives) work += kind.work_ms;
  EXPECT_NEAR(work, 8000, 1e-6);  // time that two share counts once
}

TEST(SimulatedCluster, CollectivesOfCpuRanksTakeCoresFromComputation) {
  Cluster cluster;
  cluster.machine = machine_with_round_rates("cpu", 1);
  cluster.gpus = 2;
  cluster.link = "instant";
  for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce"})
    for (const double bytes : {1e3, 1e9})
      cluster.machine.collectives.push_back({operation, 2, bytes, bytes * 1e-9, bytes * 5e-10});
  const auto predicted = [&](double cores, double fresh_per_s) {
    cluster.machine.cores = cores;
    cluster.machine.threads = 1;
    cluster.machine.fresh_per_s = fresh_per_s;
    return simulated(asked_of(1), cluster).time;
  };
  const TimePlan unknown = predicted(0, 0), free = predicted(4, 0), none = predicted(2, 0);
  EXPECT_NEAR(free.step_ms, unknown.step_ms, 1e-9);
  EXPECT_NEAR(without_core(cluster.machine, 2), 1, 1e-12);
  // Half of each collective's time, of which the computation waits for less in return.
  const auto own = [](const TimePlan& plan) { return plan.step_ms - plan.exposed_ms; };
  EXPECT_NEAR(own(none) - own(free), 0.5 * none.communication_ms, 0.01 * none.communication_ms);
  EXPECT_LT(none.exposed_ms, free.exposed_ms);
  cluster.machine.cores = 3;
  EXPECT_NEAR(without_core(cluster.machine, 2), 0.5, 1e-12);
  // Whole weights for both passes, gradients, and the row in which they travel are new memory.
  constexpr double kWeights = 1.23e9, kBytes = 2 + 2 + 4 + 4;
  EXPECT_NEAR(own(predicted(4, 1e9)) - own(free), kWeights * kBytes / 1e9 * 1e3,
              0.15 * kWeights * kBytes / 1e9 * 1e3);
}

// A block has several buckets, which leave as the gradients of their layers come. Of an H200 and
// three that were modelled (4 x 640 tokens, 25 MiB a bucket), 9.8 ms were waited for.
TEST(SimulatedCluster, BucketsOfABlockLeaveBeforeItsBackwardEnds) {
  Json options = asked_of(1);
  options.erase("replicate");
  options["parallel"] = "ddp";
  options["optimizer"] = "adamw";
  const experiment::ExperimentOptions resolved = resolve_for(options, nodes_of(1, 4));
  const PlannedModel model(resolved, resolved.seq_length, true);
  std::map<size_t, std::vector<double>> shares;
  for (const PlannedUnit& unit : model.units(resolved, 4))
    shares[unit.backward_ends_at].push_back(unit.ends_after);
  ASSERT_GT(shares[3].size(), 2U);
  EXPECT_TRUE(std::ranges::is_sorted(shares[3], std::ranges::greater{})) << "in forward order";
  EXPECT_GT(shares[3].front(), 0.99);
  EXPECT_LT(shares[3].back(), 0.7);

  const Json qwen{{"model", "qwen1.5-1.8b"}, {"task", "lm"},
                  {"mode", "none"},          {"batch_size", 4},
                  {"seq_length", 640},       {"parallel", "ddp"},
                  {"dtype", "float32"},      {"param_dtype", "bfloat16"},
                  {"optimizer", "adamw"},    {"compile", "no"}};
  Cluster four = one_h200();
  four.gpus = 4;
  EXPECT_NEAR(simulated(qwen, four).time.exposed_ms, 9.8, 2);
  // In a second pass engines form the sums of a block together, and the buckets leave behind them.
  Json engine = qwen;
  engine["mode"] = "flash";
  EXPECT_GT(simulated(engine, four).time.exposed_ms, 15);
}

TEST(SimulatedCluster, OneRankStandsForAllThatAreAlike) {
  for (const int64_t replicate : {1, 2, 4}) {
    for (const char* mode : {"none", "bookkeeping", "flash"}) {
      Cluster folded = nodes_of(2, 4), all = nodes_of(2, 4);
      all.slowness.assign(8, 0.0);
      const Prediction one = simulated(asked_of(replicate, mode), folded),
                       each = simulated(asked_of(replicate, mode), all);
      EXPECT_EQ(one.time.ranks.size(), 1U);
      ASSERT_EQ(each.time.ranks.size(), 8U);
      EXPECT_NEAR(each.time.step_ms, one.time.step_ms, 1e-6 * one.time.step_ms)
          << replicate << mode;
      EXPECT_NEAR(each.time.exposed_ms, one.time.exposed_ms, 1e-6 * one.time.step_ms);
    }
  }
}

TEST(SimulatedCluster, AnAdapterThatIsSharedIsSlower) {
  Cluster own = nodes_of(4, 8), shared = nodes_of(4, 8);
  shared.nics = 1;
  for (const int64_t replicate : {1, 4}) {
    const Prediction fast = simulated(asked_of(replicate), own),
                     slow = simulated(asked_of(replicate), shared);
    EXPECT_GT(slow.time.communication_ms, 2 * fast.time.communication_ms) << replicate;
    EXPECT_GT(slow.time.step_ms, fast.time.step_ms);
  }
}

TEST(SimulatedCluster, ASlowRankOfAnotherCopyIsWaitedForBetweenCopies) {
  Cluster even = nodes_of(2, 4), uneven = nodes_of(2, 4);
  even.slowness.assign(8, 0.0);
  uneven.slowness.assign(8, 0.0);
  uneven.slowness[7] = 0.5;  // of the second copy
  const double alone = simulated(asked_of(2), even).time.step_ms;
  const Prediction held = simulated(asked_of(2), uneven);
  EXPECT_GT(held.time.ranks[0].exposed_ms, 0.2 * alone);
  EXPECT_GT(held.time.step_ms, 1.3 * alone);
}

TEST(SimulatedCluster, StragglersFollowFromTheSeed) {
  Cluster cluster = nodes_of(4, 4);
  cluster.stragglers = {.slow_ranks = 2, .slow_by = 0.3, .jitter = 0.05, .seed = 7};
  const double first = simulated(asked_of(1), cluster).time.step_ms;
  EXPECT_EQ(simulated(asked_of(1), cluster).time.step_ms, first);
  const double alone = simulated(asked_of(1), nodes_of(4, 4)).time.step_ms;
  EXPECT_GT(first, 1.25 * alone);
  cluster.stragglers.seed = 8;
  EXPECT_NE(simulated(asked_of(1), cluster).time.step_ms, first);
  cluster.stragglers.slow_ranks = 17;
  EXPECT_THROW(simulated(asked_of(1), cluster), UsageError);
}

TEST(SimulatedCluster, TracesHaveThePhasesOfEveryRank) {
  Cluster cluster = nodes_of(1, 4);
  cluster.stragglers.jitter = 0.1;
  const experiment::ExperimentOptions options = resolve_for(asked_of(1, "bookkeeping"), cluster);
  std::vector<TraceSpan> spans;
  const Prediction prediction =
      predict(PlannedModel(options, options.seq_length, true), options, cluster, &spans);
  std::map<int, std::map<std::string, double>> phases;  // by rank
  for (const TraceSpan& span : spans)
    if (span.lane == std::string("phases"))
      phases[span.rank][span.name] += span.end_ms - span.begin_ms;
  ASSERT_EQ(phases.size(), 4U);
  for (auto& [rank, own] : phases) {
    double sum = 0;
    for (const auto& [name, ms] : own) {
      sum += ms;
      EXPECT_TRUE(phases[0].contains(name)) << name << " of rank " << rank;
    }
    EXPECT_NEAR(sum, prediction.time.step_ms, 0.2 * prediction.time.step_ms) << "rank " << rank;
    EXPECT_GT(own["backward"], own["forward"]) << "rank " << rank;
  }
  EXPECT_NE(phases[1]["backward"], phases[0]["backward"]);  // they differ, as the ranks do
}

TEST(SimulatedCluster, AThousandRanksAreSimulatedOneByOne) {
  Cluster cluster = nodes_of(128, 8);
  cluster.stragglers.jitter = 0.02;
  const Prediction plan = simulated(asked_of(128), cluster);
  EXPECT_EQ(plan.time.ranks.size(), 1024U);
  EXPECT_GT(plan.time.step_ms, simulated(asked_of(128), nodes_of(128, 8)).time.step_ms);
}

TEST(ModelledRecord, IsARecordLikeAnyOther) {
  const TemporaryFolder folder;
  Cluster cluster = nodes_of(2, 4);
  cluster.stragglers.jitter = 0.02;
  Json options = asked_of(2, "bookkeeping");
  options["profile"] = "layers";
  const records::Result record =
      modelled_record(resolve_for(options, cluster), cluster, 3, folder.path());
  EXPECT_EQ(record.status, "ok");
  ASSERT_EQ(record.steps.size(), 3U);
  EXPECT_NE(record.steps[0].time_ms, record.steps[1].time_ms);
  EXPECT_EQ(record.ranks.size(), 8U);
  EXPECT_TRUE(record.modelled.starts_with("every figure"));
  EXPECT_EQ(record.options["world"], "modelled:8 = 2 x 4 test, infiniband");
  EXPECT_TRUE(std::all_of(record.comm.begin(), record.comm.end(),
                          [](const records::Collective& kind) { return kind.modelled; }));
  EXPECT_GT(record.layers.size(), 16U * 7);
  Json upper = options;
  upper["trained"] = "*layers.14.*,*layers.15.*";
  std::set<std::string> blocks;
  for (const records::LayerTime& row :
       modelled_record(resolve_for(upper, cluster), cluster, 3).layers)
    blocks.insert(row.layer.substr(0, std::string("model.layers.14").size()));
  EXPECT_EQ(blocks, (std::set<std::string>{"model.layers.14", "model.layers.15"}));
  Json without_first = options;
  without_first["frozen"] = "*layers.0.mlp*";
  std::set<std::string> names;
  const records::Result most = modelled_record(resolve_for(without_first, cluster), cluster, 3);
  for (const records::LayerTime& row : most.layers) names.insert(row.layer);
  EXPECT_EQ(names.size(), most.layers.size());  // every block's by its own name
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "trace.rank7.json.gz") ||
              std::filesystem::exists(folder.path() / "trace.rank7.json"));
  const std::vector<std::string> defects = records::check_record(records::json_of(record));
  EXPECT_TRUE(defects.empty()) << defects[0];

  cluster.memory_bytes = 1e9;
  const records::Result refused = modelled_record(resolve_for(options, cluster), cluster, 3);
  EXPECT_EQ(refused.status, "oom");
  EXPECT_EQ(refused.phase, "plan");
  EXPECT_FALSE(refused.savings.empty());
}

}  // namespace
}  // namespace moonshard::plan
