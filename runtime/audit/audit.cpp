#include "runtime/audit/audit.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "runtime/accountant/gaussian.h"
#include "runtime/audit/bounds.h"
#include "runtime/audit/canary_bench.h"
#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/comm/world.h"
#include "runtime/privacy/clip_engine.h"

namespace moonshard::audit {
namespace {

// Scores of one experiment. Scores and membership stay inside the audit: results contain only the
// bounds.
struct Experiment {
  std::string name;  ///< one of kExperiments
  Scores scores;
};

// projection   the release along the canary's own gradient
// difference   the same minus a neighbouring step's, in which the canary has no part
// scale        the size of the noise in unused rows, in a batch of one or two
// silence      the same in a batch of none or one
constexpr const char* kExperiments[] = {"projection", "difference", "scale", "silence"};

class Coins {
 public:
  explicit Coins(uint64_t seed) : generator_(seed) {}
  bool toss() { return (generator_() >> 63) != 0; }

 private:
  std::mt19937_64 generator_;
};

void add_score(Scores& scores, bool is_in, double score) {
  (is_in ? scores.in : scores.out).push_back(score);
}

// Steps alternate between even and odd rows: a step's canaries do not touch the rows of its
// neighbours' canaries. Two micro-batches a step, as with gradient accumulation.
void run_canary_steps(BenchOptions options, int64_t canaries, Coins& coins,
                      const std::shared_ptr<comm::World>& world, Experiment& projection,
                      Experiment& difference_of_steps) {
  const int64_t per_step = std::min(canaries, CanaryBench::kRows / 2);
  const int64_t steps = std::max<int64_t>(2, (canaries + per_step - 1) / per_step);
  options.expected_batch_size = std::max<int64_t>(1, per_step / 2);
  options.grad_accum = 2;
  CanaryBench bench(options, world);
  std::vector<Released> released;
  std::vector<std::vector<bool>> tosses;
  for (int64_t step = 0; step < steps; ++step) {
    throw_if_interrupted();
    std::vector<bool>& is_in = tosses.emplace_back();
    std::vector<int64_t> taken;
    for (int64_t i = 0; i < per_step; ++i) {
      is_in.push_back(coins.toss());
      if (is_in.back()) taken.push_back(2 * i + step % 2);
    }
    released.push_back(bench.step(taken));
  }
  for (size_t step = 0; step < released.size(); ++step) {
    const size_t neighbour = step + 1 < released.size() ? step + 1 : step - 1;
    const at::Tensor own = bench.project(released[step]);
    const at::Tensor apart = bench.project(difference(released[step], released[neighbour]));
    for (size_t i = 0; i < tosses[step].size(); ++i) {
      const int64_t row = static_cast<int64_t>(2 * i + step % 2);
      add_score(projection.scores, tosses[step][i], own[row].item<double>());
      add_score(difference_of_steps.scores, tosses[step][i], apart[row].item<double>());
    }
  }
}

// Row 0 is a sample that is always included, row 1 the canary. The division must be by one,
// whatever the batch size. A release whose noise halves with two samples scores 1 in `scale`; one
// without noise when the batch is empty scores 0 in `silence`, and 1 else.
void run_tiny_batches(BenchOptions options, int64_t trials, Coins& coins,
                      const std::shared_ptr<comm::World>& world, Experiment& scale,
                      Experiment& silence) {
  options.expected_batch_size = 1;
  CanaryBench bench(options, world);
  for (int64_t trial = 0; trial < trials; ++trial) {
    throw_if_interrupted();
    const bool is_in = coins.toss(), has_company = trial % 2 == 0;
    std::vector<int64_t> taken;
    if (has_company) taken.push_back(0);
    if (is_in) taken.push_back(1);
    const double size = bench.untouched_size(bench.step(taken), 2) / options.sigma;
    if (has_company) {
      add_score(scale.scores, is_in, -std::log2(std::max(size, 1e-6)));
    } else {
      add_score(silence.scores, is_in, size);
    }
  }
}

// Runs them all. The coins are drawn from `coin_seed`; all ranks compute the same scores.
std::vector<Experiment> run_experiments(BenchOptions options, int64_t canaries, int64_t trials,
                                        uint64_t coin_seed, std::shared_ptr<comm::World> world) {
  std::vector<Experiment> list;
  for (const char* name : kExperiments) list.push_back({name, {}});
  Coins coins(coin_seed);
  run_canary_steps(options, canaries, coins, world, list[0], list[1]);
  options.seed += 1;  // other weights and other noise
  run_tiny_batches(options, trials, coins, world, list[2], list[3]);
  return list;
}

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
  fail_unknown_name("audit: option 'engine'", wanted, names);
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
      run_experiments(bench, options.canaries, options.trials, scattered(base), world);
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
  const OneThread one_thread;
  const auto world = sharding::real_world("audit", options.sharding);
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
  sharding::add_wrapper(report, options.sharding);
  return report;
}

}  // namespace moonshard::audit
