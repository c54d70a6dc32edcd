#include "runtime/audit/audit.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/ranges.h>

#include "runtime/accountant/gaussian.h"
#include "runtime/audit/bounds.h"
#include "runtime/audit/experiments.h"
#include "runtime/comm/world.h"
#include "runtime/privacy/clip_engine.h"

namespace moonshard::audit {
namespace {

constexpr int kBoundsPerExperiment = 3;

std::vector<std::string> private_engines() {
  std::vector<std::string> names;
  for (const privacy::EngineDescription& engine : privacy::engine_descriptions())
    if (engine.is_private) names.push_back(engine.name);
  return names;
}

std::vector<std::string> wanted_engines(const std::string& wanted) {
  std::vector<std::string> names = private_engines();
  if (wanted.empty() || wanted == "all") return names;
  const std::string name = privacy::canonical_engine(wanted);
  MS_CHECK(name != "none",
           "audit: option 'engine': expected a private engine, got none, which promises nothing");
  if (std::find(names.begin(), names.end(), name) != names.end()) return {name};
  names.push_back("all");
  const std::string near = nearest_name(wanted, names);
  throw UsageError(fmt::format("audit: option 'engine': expected one of {}, got '{}'{}",
                               fmt::join(names, ", "), wanted,
                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

// Neighbouring seeds must not give correlated runs: they are mixed. 53 bits, the most a seed may
// have.
uint64_t scattered(uint64_t seed) {
  seed += 0x9e3779b97f4a7c15u;
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
  return seed ^ (seed >> 31);
}

// Tensors are tiny: more threads would only wait for each other.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

EngineAudit audit_engine(const AuditOptions& options, const std::string& engine, int64_t repeat,
                         const std::shared_ptr<comm::World>& world) {
  BenchOptions bench;
  bench.engine = engine;
  bench.clipping = options.clipping;
  bench.sigma = options.sigma;
  bench.secure = options.secure;
  bench.device = options.device;
  bench.sharding = options.sharding;
  bench.hooks = options.hooks;
  // Engines given the same seed would draw the same numbers: six audits would be one.
  const uint64_t base = scattered(static_cast<uint64_t>(options.seed + repeat) ^
                                  scattered(std::hash<std::string>()(engine)));
  bench.seed = static_cast<int64_t>(base >> 12);
  const std::vector<Experiment> experiments =
      run_experiments(bench, {options.canaries, options.trials}, scattered(base), world);
  EngineAudit result;
  result.engine = engine;
  result.repeat = repeat;
  // Each canary is in at most one step, with certainty: a Gaussian release without subsampling.
  result.claimed = accountant::gaussian_epsilon(1 / options.sigma, options.delta);
  const double share =
      options.significance / static_cast<double>(experiments.size() * kBoundsPerExperiment);
  for (const Experiment& experiment : experiments) {
    Bounds bounds;
    bounds.one_run = one_run_bound(experiment.scores, share, options.delta);
    bounds.gaussian_dp = gaussian_dp_bound(experiment.scores, share, options.delta);
    bounds.clopper_pearson = clopper_pearson_bound(experiment.scores, share, options.delta);
    if (bounds.largest() > result.claimed)
      result.exceeding += (result.exceeding.empty() ? "" : ", ") + experiment.name;
    result.bounds.one_run = std::max(result.bounds.one_run, bounds.one_run);
    result.bounds.gaussian_dp = std::max(result.bounds.gaussian_dp, bounds.gaussian_dp);
    result.bounds.clopper_pearson = std::max(result.bounds.clopper_pearson, bounds.clopper_pearson);
    result.experiments.push_back({experiment.name, bounds});
  }
  return result;
}

Json number(double value) {  // JSON has no infinity
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

void add_bounds(Json& entry, const Bounds& bounds) {
  entry["one_run"] = number(bounds.one_run);
  entry["gaussian_dp"] = number(bounds.gaussian_dp);
  entry["clopper_pearson"] = number(bounds.clopper_pearson);
}

}  // namespace

double Bounds::largest() const {
  return std::max({one_run, gaussian_dp, clopper_pearson});
}

std::vector<EngineAudit> audit(const AuditOptions& options, const AuditObserver& observer) {
  const std::vector<std::string> engines = wanted_engines(options.engine);
  sharding::refuse_unused_options(options.sharding);
  const OneThread one_thread;
  const auto world = comm::make_world(options.sharding.world, options.sharding.link);
  MS_CHECK(world->size() == 1 || options.sharding.parallel != "none",
           "audit: expected a wrapper for {} ranks, got parallel = none; give --parallel ddp or "
           "fsdp",
           world->size());
  MS_CHECK(!world->is_fake(), "audit: expected real ranks, got world = {}; start them with --nproc",
           options.sharding.world);
  std::vector<EngineAudit> audits;
  for (const std::string& engine : engines) {
    for (int64_t repeat = 0; repeat < options.seeds; ++repeat) {
      audits.push_back(audit_engine(options, engine, repeat, world));
      if (observer) observer(audits.back());
    }
  }
  return audits;
}

Json to_json(const std::vector<EngineAudit>& audits, const AuditOptions& options) {
  Json list = Json::array();
  int64_t exceeded = 0;
  for (const EngineAudit& audit : audits) {
    Json entry{{"engine", audit.engine},
               {"repeat", audit.repeat},
               {"claimed_epsilon", audit.claimed},
               {"holds", audit.holds()},
               {"exceeding", audit.exceeding}};
    add_bounds(entry, audit.bounds);
    for (const ExperimentBounds& experiment : audit.experiments) {
      Json bounds = Json::object();
      add_bounds(bounds, experiment.bounds);
      entry["experiments"][experiment.experiment] = std::move(bounds);
    }
    exceeded += audit.holds() ? 0 : 1;
    list.push_back(std::move(entry));
  }
  Json report{{"audits", std::move(list)},    {"exceeded", exceeded},
              {"canaries", options.canaries}, {"trials", options.trials},
              {"clipping", options.clipping}, {"sigma", options.sigma},
              {"delta", options.delta},       {"significance", options.significance},
              {"secure", options.secure}};
  if (options.sharding.parallel != "none") {
    report["parallel"] = options.sharding.parallel;
    if (options.sharding.parallel == "fsdp") report["sharding"] = options.sharding.sharding;
    report["world"] = comm::this_world()->size();
  }
  return report;
}

}  // namespace moonshard::audit
