// Audits: does the real training leak no more than the accountant claims? Canaries are put into the
// real training step by fair coins, an adversary who sees the weights guesses the coins, and
// statistics turn the guesses into lower bounds on epsilon. A bound above the claim disproves it; a
// bound below proves nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/options.h"
#include "runtime/privacy/step_hooks.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::audit {

struct AuditSettings {
  std::string engine = "all";  ///< one private engine, or all of them
  std::string clipping = "flat";
  int64_t seeds = 1;
  int64_t canaries = 4000;
  int64_t trials = 120;
  double sigma = 1;
  double delta = 1e-5;
  double significance = 0.05;
  bool secure = false;
  std::string device = "auto";
  int64_t seed = 1;
};

struct AuditOptions : AuditSettings {
  /// With a wrapper the canaries are dealt out to the ranks; all ranks call audit alike.
  sharding::ShardingOptions sharding;
  /// Hooks of the audited trainers; null: none. Deliberate mistakes are injected here
  /// (runtime/verify/faults.h).
  std::shared_ptr<privacy::StepHooks> hooks;
};

/// The options without those of wrappers, for a T that derives from AuditSettings; `where` is the
/// messages' prefix.
template <class T>
OptionSchema audit_schema(const std::string& where);

/// Lower bounds on epsilon. The significance is divided among them, so that they hold jointly.
struct Bounds {
  double one_run = 0, gaussian_dp = 0, clopper_pearson = 0;
  double largest() const;
};

struct ExperimentBounds {
  std::string experiment;  ///< experiments.h
  Bounds bounds;
};

/// One engine, one seed.
struct EngineAudit {
  std::string engine;
  int64_t repeat = 0;  ///< 0 is the first seed; seeds themselves are not published
  double claimed = 0;  ///< epsilon of one noised step that the canary may be in
  std::vector<ExperimentBounds> experiments;
  Bounds bounds;          ///< the largest of the experiments'
  std::string exceeding;  ///< experiments with a bound above the claim; empty: none
  bool holds() const { return exceeding.empty(); }
};

using AuditObserver = std::function<void(const EngineAudit&)>;

/// Runs the audits that the options name. Throws UsageError for unknown names, and for engines
/// without a privacy guarantee.
std::vector<EngineAudit> audit(const AuditOptions& options, const AuditObserver& observer = {});

/// {"audits": [{engine, claimed_epsilon, one_run, gaussian_dp, clopper_pearson, holds, …}],
/// "exceeded": n, …}. Neither coins nor scores nor seeds.
Json to_json(const std::vector<EngineAudit>& audits, const AuditOptions& options);

// ---- templates --------------------------------------------------------------------------------

template <class T>
OptionSchema audit_schema(const std::string& where) {
  OptionSchema schema(where);
  schema.text<T>("engine", &T::engine, "one private engine, or all");
  schema.choice<T>("clipping", &T::clipping, {"flat", "per_layer", "automatic", "adaptive"},
                   "style of clipping that is audited");
  schema.integer<T>("seeds", &T::seeds, 1, 1e6,
                    "audits of each engine, with other coins and noise");
  schema.integer<T>("canaries", &T::canaries, 20, 1e7, "samples that are put in by a coin each");
  schema.integer<T>("trials", &T::trials, 4, 1e6,
                    "steps of tiny batches: do they tell their size?");
  schema.real<T>("sigma", &T::sigma, 1e-3, 1e3, "noise multiplier that is audited");
  schema.real<T>("delta", &T::delta, 1e-15, 0.1, "of the claim and of the bounds");
  schema.real<T>("significance", &T::significance, 1e-9, 0.5,
                 "chance that a correct engine is accused, over all bounds of an audit");
  schema.boolean<T>("secure", &T::secure,
                    "noise from the operating system, as experiments have it with secure");
  schema.choice<T>("device", &T::device, {"auto", "cpu", "cuda"}, "where it runs");
  schema.integer<T>("seed", &T::seed, 0, 9007199254740991.0, "of weights, noise and coins");
  return schema;
}

}  // namespace moonshard::audit
