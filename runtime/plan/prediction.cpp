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

MemorySituation memory_situation(const experiment::ExperimentOptions& options,
                                 const Cluster& cluster, const TimeSituation& timed) {
  MemorySituation situation;
  situation.samples = options.batch_size;
  situation.grad_accum = options.grad_accum;
  situation.ranks = cluster.ranks();
  situation.states = timed.states;
  situation.state_bytes = timed.state_bytes;
  situation.context_bytes = cluster.machine.context_bytes;
  situation.checkpointing = options.checkpointing;
  situation.checkpoint_every = options.checkpoint_every;
  return situation;
}

// The largest tensor of a step needs room a second time where a graph has memory of its own, and
// where segments do not grow: these give parts of theirs to smaller tensors.
double hole_bytes(const PlannedModel& model, const experiment::ExperimentOptions& options,
                  const Cluster& cluster, bool graph) {
  if (!cluster.machine.is_gpu) return 0;
  int64_t widest = 0;
  for (const auto* layers : {&model.block, &model.last_block, &model.behind})
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

// What was compared with measured steps: ranks that are alike, at most those of a node, with links
// and hosts as profiles have them.
bool is_like_checked(const Cluster& cluster, const experiment::ExperimentOptions& options) {
  constexpr int kMostRanks = 8;
  const LinkRate& link = cluster.given_link;
  if (link.bytes_per_s > 0 || link.latency_s >= 0) return false;
  if (cluster.shares_host && sharding::offloads_some(options)) return false;
  return cluster.nodes == 1 && cluster.ranks() <= kMostRanks && cluster.slowness.empty() &&
         !cluster.stragglers.any();
}

// One configuration, predicted in the order in which the training decides: eagerly, then whether
// its steps become a graph.
class Predictor {
 public:
  Predictor(const PlannedModel& model, const experiment::ExperimentOptions& options,
            const Cluster& cluster, SharedCosts& costs)
      : model_(model),
        options_(options),
        cluster_(cluster),
        costs_(costs),
        engine_(engine_situation(model, options, cluster)),
        timed_(time_situation(options, cluster)),
        held_(memory_situation(options, cluster, timed_)),
        ways_(step_ways(model, engine_, options.grad_accum > 1, costs)) {}

  Prediction predict(std::vector<TraceSpan>* trace) {
    result_.two_passes = ways_.last.two_passes;
    result_.time = simulated();
    result_.memory = walk_memory(model_, ways_, options_, held_);
    result_.most_bytes = result_.memory.peak;
    if (may_be_a_graph(options_, cluster_)) decide_graph();
    if (trace != nullptr) result_.time = simulated(trace);
    if (options_.mode == "auto") count_largest_ways();
    judge_fit();
    add_spread();
    add_rates();
    return std::move(result_);
  }
  const EngineWays& ways() const { return ways_.last; }

 private:
  TimePlan simulated(std::vector<TraceSpan>* trace = nullptr) const {
    return simulate_step(model_, ways_, costs_, options_, timed_, cluster_.machine, trace);
  }

  // The training measures the host's share of an eager step; near its threshold a plan cannot tell.
  void decide_graph() {
    const bool has_room = has_room_for_graph(model_, options_, result_.memory, cluster_);
    const double share = result_.time.host_share;
    const bool is_asked = options_.compile == "yes";
    using Verdict = train::StepGraph::Verdict;
    const Verdict verdict = is_asked ? Verdict::Yes : train::StepGraph::verdict(share, has_room);
    if (verdict != Verdict::No) {
      timed_.graph = true;
      TimePlan replayed = simulated();
      result_.graph =
          verdict == Verdict::Yes || replayed.step_ms <= kSurelyFaster * result_.time.step_ms;
      if (result_.graph) result_.time = std::move(replayed);
      timed_.graph = result_.graph;
    }
    const bool is_unsure =
        !is_asked && has_room && std::abs(share - train::StepGraph::kHostBound) < kUnsureHostShare;
    if (!result_.graph && !is_unsure) return;
    MemorySituation with_graph = held_;
    with_graph.graph = true;
    const MemoryPlan plan = walk_memory(model_, ways_, options_, with_graph);
    result_.most_bytes = std::max(result_.most_bytes, plan.peak);
    if (!result_.graph) return;
    result_.memory = plan;
    held_ = with_graph;
  }

  void count_largest_ways() {
    engine_.at_most = true;
    const StepWays largest = step_ways(model_, engine_, options_.grad_accum > 1, costs_);
    result_.most_bytes =
        std::max(result_.most_bytes, walk_memory(model_, largest, options_, held_).peak);
  }

  void judge_fit() {
    const double margin = kFragmentation + (options_.checkpointing == "none" ? 0 : kRecomputed);
    result_.needed_bytes =
        result_.most_bytes * (1 + margin) + hole_bytes(model_, options_, cluster_, result_.graph);
    const double on_host = result_.memory.host * static_cast<double>(cluster_.gpus);
    result_.host_fits = cluster_.host_bytes <= 0 || on_host <= cluster_.host_bytes;
    result_.fits = result_.host_fits && result_.needed_bytes <= cluster_.memory_limit();
  }

  void add_spread() {
    if (!is_like_checked(cluster_, options_)) return;
    const Checked& checked = cluster_.machine.checked;
    result_.time_spread = checked.time_of(result_.time.host_ms / result_.time.step_ms);
    result_.memory_spread = checked.memory;
  }

  void add_rates() {
    const double samples = static_cast<double>(options_.batch_size * options_.grad_accum);
    const double seconds = result_.time.step_ms / 1e3;
    const double tokens = samples * static_cast<double>(model_.tokens);
    result_.samples_per_s = samples * cluster_.ranks() / seconds;
    result_.tokens_per_s = tokens * cluster_.ranks() / seconds;
    result_.tokens_per_sample = model_.tokens;
    const DtypeRates& rates =
        cluster_.machine.rates(model_.compute_bytes == 2 ? "bfloat16" : "float32");
    double fastest = 0;
    for (const ProductRate& rate : rates.products) fastest = std::max(fastest, rate.per_s);
    result_.mfu_percent = 100 * tokens * model_.flops_per_token / seconds / fastest;
  }

  const PlannedModel& model_;
  const experiment::ExperimentOptions& options_;
  const Cluster& cluster_;
  SharedCosts& costs_;
  EngineSituation engine_;
  TimeSituation timed_;
  MemorySituation held_;
  StepWays ways_;
  Prediction result_;
};

}  // namespace

LinkRate link_rate(const std::string& name) {
  const comm::Link& link = comm::link_named(name);
  return {link.bytes_per_s, link.latency_us * 1e-6};
}

Prediction predict(const PlannedModel& model, const experiment::ExperimentOptions& options,
                   const Cluster& cluster, std::vector<TraceSpan>* trace, SharedCosts* shared) {
  MS_CHECK(cluster.ranks() == 1 || options.parallel != "none",
           "plan: expected parallel = ddp or fsdp for {} ranks, got none", cluster.ranks());
  std::optional<SharedCosts> own;
  SharedCosts& costs = shared != nullptr ? *shared : own.emplace(cluster.machine);
  Predictor predictor(model, options, cluster, costs);
  Prediction prediction = predictor.predict(trace);
  if (shared == nullptr) prediction.ways = predictor.ways();
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
          {"copies_exposed_ms", prediction.time.copies_exposed_ms},
          {"compute_ms", prediction.time.compute_ms},
          {"host_ms", prediction.time.host_ms},
          {"simulated_ranks", prediction.time.ranks.size()},
          {"graph", prediction.graph},
          {"two_passes", prediction.two_passes},
          {"tokens_per_s", prediction.tokens_per_s},
          {"samples_per_s", prediction.samples_per_s},
          {"tokens_per_sample", prediction.tokens_per_sample},
          {"mfu_percent", prediction.mfu_percent}};
}

std::string summary(const Prediction& prediction, double limit) {
  return fmt::format("{:.1f} GiB of {:.1f}, {:.1f} ms", prediction.memory.peak / kGiB, limit / kGiB,
                     prediction.time.step_ms);
}

}  // namespace moonshard::plan
