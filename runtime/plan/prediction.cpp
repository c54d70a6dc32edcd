#include "runtime/plan/prediction.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/comm/links.h"
#include "runtime/plan/update_costs.h"
#include "runtime/sharding/unit_policy.h"
#include "runtime/train/step_graph.h"

namespace moonshard::plan {
namespace {

// What an allocator needs beyond its tensors, in pieces that are too small for what is asked.
constexpr double kFragmentation = 0.03;
// Of the host's share of a step: how far off it may be.
constexpr double kUnsureHostShare = 0.3;
// Of an eager step's time, with a graph, both as simulated: trials of the sixth draw found no
// replay faster where it is more (14 of 15), and all where it is less.
constexpr double kSurelyFaster = 0.96;
// And what predictions of recomputed blocks were too small by, at most.
constexpr double kRecomputed = 0.03;

int states_of(const experiment::ExperimentOptions& options) {
  return options.optimizer != "sgd" ? 2 : options.momentum > 0 ? 1 : 0;
}

EngineSituation engine_situation(const PlannedModel& model,
                                 const experiment::ExperimentOptions& options,
                                 const Cluster& cluster) {
  EngineSituation situation;
  situation.mode = options.mode;
  situation.samples = options.batch_size;
  situation.needs_sums = cluster.ranks() > 1 || sharding::offloads_some(options);
  situation.per_layer = options.clipping == "per_layer";
  situation.flash_algorithm = options.flash_algorithm;
  if (options.memory_budget_mb > 0) {
    situation.budget_bytes = static_cast<double>(options.memory_budget_mb) * 1048576.0;
    situation.budget_is_asked = true;
  } else if (cluster.machine.is_gpu) {
    const double weights = static_cast<double>(model.num_parameters * model.value_bytes);
    situation.budget_bytes = std::max(0.0, (cluster.machine.memory_bytes - 2 * weights) / 2);
  }
  return situation;
}

// As the trainer asks engines (train/trainer_micro_batches.cpp).
StepWays step_ways(const PlannedModel& model, EngineSituation situation, bool has_earlier,
                   SharedCosts& costs) {
  const EngineWays& last = costs.ways(model, situation);
  if (!has_earlier) return {last, last};
  situation.needs_sums = true;
  return {costs.ways(model, situation), last};
}

// Slow ranks are those with the smallest numbers of the seed.
std::vector<double> slowness_of(const Cluster& cluster) {
  const auto ranks = static_cast<size_t>(cluster.ranks());
  const Stragglers& uneven = cluster.stragglers;
  MS_CHECK(cluster.slowness.empty() || cluster.slowness.size() == ranks,
           "plan: expected the slowness of {} ranks, got {}", ranks, cluster.slowness.size());
  MS_CHECK(uneven.slow_ranks <= cluster.ranks(),
           "plan: option 'slow_ranks': expected at most the {} ranks, got {}", ranks,
           uneven.slow_ranks);
  if (!uneven.any()) return cluster.slowness;
  constexpr uint64_t kWhichAreSlow = 0x510;
  std::vector<std::pair<double, size_t>> drawn;
  for (size_t r = 0; r < ranks; ++r)
    drawn.emplace_back(standard_normal(uneven.seed, kWhichAreSlow, r), r);
  std::sort(drawn.begin(), drawn.end());
  std::vector<double> slowness(ranks, 0);
  for (int64_t i = 0; i < uneven.slow_ranks; ++i)
    slowness[drawn[static_cast<size_t>(i)].second] = uneven.slow_by;
  return slowness;
}

// Moments are as wide as a weight; the sum of momentum is of gradients, which are float32 at least.
int state_bytes_of(const experiment::ExperimentOptions& options) {
  if (options.state_dtype == "bfloat16") return kNarrowState;
  const bool of_gradients = options.optimizer == "sgd" && options.momentum > 0;
  return of_gradients && options.dtype == "bfloat16" ? 4 : 0;
}

LinkRate rate_of(const std::string& name, const LinkRate& given) {
  LinkRate rate = link_rate(name);
  if (given.bytes_per_s > 0) rate.bytes_per_s = given.bytes_per_s;
  if (given.latency_s >= 0) rate.latency_s = given.latency_s;
  return rate;
}

TimeSituation time_situation(const experiment::ExperimentOptions& options, const Cluster& cluster) {
  TimeSituation situation;
  situation.samples = options.batch_size;
  situation.grad_accum = options.grad_accum;
  situation.ranks = cluster.ranks();
  situation.states = states_of(options);
  situation.state_bytes = state_bytes_of(options);
  situation.checkpointing = options.checkpointing;
  situation.checkpoint_every = options.checkpoint_every;
  situation.noise = options.noise_multiplier > 0;
  situation.first_steps = cluster.machine.in_step.first_steps;
  situation.topology = {cluster.gpus, cluster.nodes, rate_of(cluster.link, cluster.given_link),
                        rate_of(cluster.node_link, cluster.given_node_link), cluster.nics};
  situation.collectives_at_once = cluster.machine.is_gpu ? 1 : comm::kGlooAtOnce;
  situation.slowness = slowness_of(cluster);
  situation.jitter = cluster.stragglers.jitter;
  situation.seed = cluster.stragglers.seed;
  return situation;
}

// The largest tensor of a step needs room a second time where a graph has memory of its own, and
// where segments do not grow: these give parts of theirs to smaller tensors.
double hole_bytes(const PlannedModel& model, const experiment::ExperimentOptions& options,
                  const Cluster& cluster, bool graph) {
  if (!cluster.machine.is_gpu) return 0;
  int64_t widest = 0;
  for (const auto* layers : {&model.block, &model.behind})
    for (const PlannedLayer& layer : *layers)
      if (layer.is_matrix && !layer.one_position) widest = std::max(widest, layer.out);
  return ((graph ? 1 : 0) + (cluster.machine.fixed_segments ? 1 : 0)) *
         static_cast<double>(options.batch_size * model.tokens * widest * model.compute_bytes);
}

// By the training's own reasons. Batches of drawn sizes are seldom alike three times in a row.
bool may_be_a_graph(const experiment::ExperimentOptions& options, const Cluster& cluster) {
  return cluster.machine.is_gpu && options.compile != "no" && options.sampler == "fixed" &&
         train::graph_obstacle(c10::Device(c10::kCUDA), options.mode, options.clipping, options)
             .empty();
}

bool has_room_for_graph(const PlannedModel& model, const experiment::ExperimentOptions& options,
                        const MemoryPlan& eager, const Cluster& cluster) {
  const int64_t holders =
      options.parallel == "fsdp" ? sharding::ranks_of_a_copy(options, cluster.ranks()) : 1;
  return train::StepGraph::has_room(static_cast<int64_t>(eager.peak),
                                    static_cast<int64_t>(eager.fixed),
                                    model.num_trained * model.sum_bytes / holders,
                                    static_cast<int64_t>(cluster.machine.memory_bytes));
}

// What was compared with measured steps: ranks that are alike, at most those of a node.
bool is_like_checked(const Cluster& cluster) {
  constexpr int kMostRanks = 8;
  return cluster.nodes == 1 && cluster.ranks() <= kMostRanks && cluster.slowness.empty() &&
         !cluster.stragglers.any();
}

}  // namespace

LinkRate link_rate(const std::string& name) {
  for (const comm::Link& link : comm::kLinks)
    if (name == link.name) return {link.bytes_per_s, link.latency_us * 1e-6};
  fail_unknown_name("option 'link'", name, comm::link_names());
}

Prediction predict(const PlannedModel& model, const experiment::ExperimentOptions& options,
                   const Cluster& cluster, std::vector<TraceSpan>* trace, SharedCosts* shared) {
  MS_CHECK(cluster.ranks() == 1 || options.parallel != "none",
           "plan: expected parallel = ddp or fsdp for {} ranks, got none", cluster.ranks());
  SharedCosts own(cluster.machine);
  SharedCosts& costs = shared != nullptr ? *shared : own;
  EngineSituation engine = engine_situation(model, options, cluster);
  const bool has_earlier = options.grad_accum > 1;
  const StepWays ways = step_ways(model, engine, has_earlier, costs);
  TimeSituation timed = time_situation(options, cluster);
  Prediction prediction;
  prediction.two_passes = ways.last.two_passes;
  prediction.time = simulate_step(model, ways, costs, options, timed, cluster.machine);
  MemorySituation held;
  held.samples = options.batch_size;
  held.grad_accum = options.grad_accum;
  held.ranks = cluster.ranks();
  held.states = timed.states;
  held.state_bytes = timed.state_bytes;
  held.context_bytes = cluster.machine.context_bytes;
  held.checkpointing = options.checkpointing;
  held.checkpoint_every = options.checkpoint_every;
  prediction.memory = walk_memory(model, ways, options, held);
  prediction.most_bytes = prediction.memory.peak;
  std::optional<TimePlan> tried;  // with a graph, where the training would time one
  // The training measures the host's share of an eager step; near its threshold a plan cannot tell.
  if (may_be_a_graph(options, cluster)) {
    const bool has_room = has_room_for_graph(model, options, prediction.memory, cluster);
    const double share = prediction.time.host_share;
    prediction.graph = options.compile == "yes";
    if (!prediction.graph) {
      using Verdict = train::StepGraph::Verdict;
      const Verdict verdict = train::StepGraph::verdict(share, has_room);
      if (verdict == Verdict::Try) {
        timed.graph = true;
        tried = simulate_step(model, ways, costs, options, timed, cluster.machine);
      }
      prediction.graph = verdict == Verdict::Yes ||
                         (tried && tried->step_ms <= kSurelyFaster * prediction.time.step_ms);
    }
    const bool is_unsure = options.compile != "yes" && has_room &&
                           std::abs(share - train::StepGraph::kHostBound) < kUnsureHostShare;
    if (prediction.graph || is_unsure) {
      MemorySituation with_graph = held;
      with_graph.graph = true;
      const MemoryPlan plan = walk_memory(model, ways, options, with_graph);
      prediction.most_bytes = std::max(prediction.most_bytes, plan.peak);
      if (prediction.graph) {
        prediction.memory = plan;
        held = with_graph;
      }
    }
  }
  timed.graph = prediction.graph;
  if (prediction.graph && tried && trace == nullptr)
    prediction.time = std::move(*tried);
  else if (prediction.graph || trace != nullptr)
    prediction.time = simulate_step(model, ways, costs, options, timed, cluster.machine, trace);
  if (options.mode == "auto") {
    engine.at_most = true;
    const StepWays largest = step_ways(model, engine, has_earlier, costs);
    prediction.most_bytes =
        std::max(prediction.most_bytes, walk_memory(model, largest, options, held).peak);
  }
  const double margin = kFragmentation + (options.checkpointing == "none" ? 0 : kRecomputed);
  const double hole = hole_bytes(model, options, cluster, prediction.graph);
  prediction.needed_bytes = prediction.most_bytes * (1 + margin) + hole;
  prediction.fits = prediction.needed_bytes <= cluster.memory_limit();

  if (is_like_checked(cluster)) {
    prediction.time_spread =
        cluster.machine.checked.time_of(prediction.time.host_ms / prediction.time.step_ms);
    prediction.memory_spread = cluster.machine.checked.memory;
  }

  if (shared == nullptr) prediction.ways = ways.last;
  const double samples = static_cast<double>(options.batch_size * options.grad_accum);
  const double seconds = prediction.time.step_ms / 1e3;
  const double tokens = samples * static_cast<double>(model.tokens);
  prediction.samples_per_s = samples * cluster.ranks() / seconds;
  prediction.tokens_per_s = tokens * cluster.ranks() / seconds;
  const DtypeRates& rates =
      cluster.machine.rates(model.compute_bytes == 2 ? "bfloat16" : "float32");
  double fastest = 0;
  for (const ProductRate& rate : rates.products) fastest = std::max(fastest, rate.per_s);
  prediction.mfu_percent = 100 * tokens * model.flops_per_token / seconds / fastest;
  return prediction;
}

namespace {

Json range_json(const Spread& spread, double predicted) {
  return {{"low", spread.low * predicted},
          {"high", spread.high * predicted},
          {"points", spread.points}};
}

}  // namespace

Json to_json(const Prediction& prediction) {
  Json breakdown = Json::array();
  for (size_t i = 0; i < kHolders; ++i)
    if (prediction.memory.at_peak[i] > 0)
      breakdown.push_back({{"owner", holder_name(static_cast<Holder>(i))},
                           {"bytes", std::round(prediction.memory.at_peak[i])}});
  Json phases = Json::object();
  for (const auto& [name, ms] : prediction.time.phases_ms) phases[name] = ms;
  Json likely = Json::object();
  if (prediction.time_spread.points > 0) {
    likely["step_ms"] = range_json(prediction.time_spread, prediction.time.step_ms);
    likely["peak_memory_bytes"] = range_json(prediction.memory_spread, prediction.memory.peak);
  }
  return {{"fits", prediction.fits},
          {"likely", std::move(likely)},
          {"peak_memory_bytes", std::round(prediction.memory.peak)},
          {"peak_at_most_bytes", std::round(prediction.most_bytes)},
          {"peak_phase", prediction.memory.phase},
          {"breakdown", std::move(breakdown)},
          {"fixed_bytes", std::round(prediction.memory.fixed)},
          {"host_bytes", std::round(prediction.memory.host)},
          {"step_ms", prediction.time.step_ms},
          {"phases_ms", std::move(phases)},
          {"communication_ms", prediction.time.communication_ms},
          {"exposed_ms", prediction.time.exposed_ms},
          {"compute_ms", prediction.time.compute_ms},
          {"host_ms", prediction.time.host_ms},
          {"simulated_ranks", prediction.time.ranks.size()},
          {"graph", prediction.graph},
          {"two_passes", prediction.two_passes},
          {"tokens_per_s", prediction.tokens_per_s},
          {"samples_per_s", prediction.samples_per_s},
          {"mfu_percent", prediction.mfu_percent}};
}

std::string summary(const Prediction& prediction, double limit) {
  return fmt::format("{:.1f} GiB of {:.1f}, {:.1f} ms", prediction.memory.peak / kGiB, limit / kGiB,
                     prediction.time.step_ms);
}

}  // namespace moonshard::plan
