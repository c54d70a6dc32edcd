#include "runtime/plan/prediction.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/analysis/savings.h"
#include "runtime/base/check.h"
#include "runtime/comm/links.h"
#include "runtime/records/schema_json.h"
#include "runtime/train/step_graph.h"

namespace moonshard::plan {
namespace {

// What an allocator needs beyond its tensors, in pieces that are too small for what is asked.
constexpr double kFragmentation = 0.03;
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
  situation.needs_sums = cluster.ranks() > 1 || options.grad_accum > 1 || options.cpu_offload;
  situation.per_layer = options.clipping == "per_layer";
  situation.flash_algorithm = options.flash_algorithm;
  if (options.memory_budget_mb > 0) {
    situation.budget_bytes = static_cast<double>(options.memory_budget_mb) * 1048576.0;
  } else if (cluster.machine.is_gpu) {
    const double weights = static_cast<double>(model.num_parameters * model.value_bytes);
    situation.budget_bytes = std::max(0.0, (cluster.machine.memory_bytes - 2 * weights) / 2);
  }
  return situation;
}

TimeSituation time_situation(const experiment::ExperimentOptions& options, const Cluster& cluster) {
  TimeSituation situation;
  situation.samples = options.batch_size;
  situation.grad_accum = options.grad_accum;
  situation.ranks = cluster.ranks();
  situation.states = states_of(options);
  situation.checkpointing = options.checkpointing;
  situation.checkpoint_every = options.checkpoint_every;
  situation.noise = options.noise_multiplier > 0;
  const int64_t together = situation.ranks / std::max<int64_t>(1, options.replicate);
  situation.link = link_rate(together <= cluster.gpus ? cluster.link : cluster.node_link);
  situation.copies = link_rate(cluster.nodes > 1 ? cluster.node_link : cluster.link);
  situation.slowness = cluster.slowness;
  return situation;
}

bool may_be_a_graph(const experiment::ExperimentOptions& options, const Cluster& cluster) {
  return cluster.machine.is_gpu && options.compile != "no" && cluster.ranks() == 1 &&
         !options.cpu_offload && options.clipping != "adaptive" && options.sampler == "fixed";
}

}  // namespace

LinkRate link_rate(const std::string& name) {
  for (const comm::Link& link : comm::kLinks)
    if (name == link.name) return {link.bytes_per_s, link.latency_us * 1e-6};
  fail_unknown_name("option 'link'", name, comm::link_names());
}

Prediction predict(const PlannedModel& model, const experiment::ExperimentOptions& options,
                   const Cluster& cluster, std::vector<TraceSpan>* trace) {
  MS_CHECK(cluster.ranks() == 1 || options.parallel != "none",
           "plan: expected parallel = ddp or fsdp for {} ranks, got none", cluster.ranks());
  const EngineWays ways =
      engine_ways(model, engine_situation(model, options, cluster), cluster.machine);
  TimeSituation timed = time_situation(options, cluster);
  Prediction prediction;
  prediction.two_passes = ways.two_passes;
  prediction.time = simulate_step(model, ways, options, timed, cluster.machine);
  if (may_be_a_graph(options, cluster)) {
    const bool is_bound =
        prediction.time.host_ms >= train::StepGraph::kHostBound * prediction.time.step_ms;
    prediction.graph = options.compile == "yes" || is_bound;
  }
  timed.graph = prediction.graph;
  if (prediction.graph || trace != nullptr)
    prediction.time = simulate_step(model, ways, options, timed, cluster.machine, trace);

  MemorySituation held;
  held.samples = options.batch_size;
  held.grad_accum = options.grad_accum;
  held.ranks = cluster.ranks();
  held.states = timed.states;
  held.state_bytes = options.state_dtype == "bfloat16" ? 2 : 0;
  held.graph = prediction.graph;
  held.context_bytes = cluster.machine.context_bytes;
  held.checkpointing = options.checkpointing;
  held.checkpoint_every = options.checkpoint_every;
  prediction.memory = walk_memory(model, ways, options, held);
  const double margin = kFragmentation + (options.checkpointing == "none" ? 0 : kRecomputed);
  prediction.fits = prediction.memory.peak * (1 + margin) <= cluster.memory_limit();

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

Json to_json(const Prediction& prediction) {
  Json breakdown = Json::array();
  for (size_t i = 0; i < kHolders; ++i)
    if (prediction.memory.at_peak[i] > 0)
      breakdown.push_back({{"owner", holder_name(static_cast<Holder>(i))},
                           {"bytes", std::round(prediction.memory.at_peak[i])}});
  Json phases = Json::object();
  for (const auto& [name, ms] : prediction.time.phases_ms) phases[name] = ms;
  return {{"fits", prediction.fits},
          {"peak_memory_bytes", std::round(prediction.memory.peak)},
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

Json savings(const experiment::ExperimentOptions& options, const Prediction& prediction,
             int64_t ranks) {
  analysis::HeldMemory held;
  held.options = experiment::experiment_schema().to_json(&options);
  for (size_t i = 0; i < kHolders; ++i)
    held.owners.push_back({holder_name(static_cast<Holder>(i)), prediction.memory.at_peak[i]});
  held.ranks = static_cast<double>(ranks);
  Json list = Json::array();
  for (const records::Saving& saving : analysis::memory_savings(held))
    list.push_back({{"change", saving.change}, {"bytes", saving.bytes}, {"reason", saving.reason}});
  return list;
}

}  // namespace moonshard::plan
