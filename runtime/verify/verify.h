// Every engine against the reference, cell by cell.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/privacy/step_hooks.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::verify {

struct VerifyOptions {
  std::string model;    ///< one preset; empty means every tiny one
  std::string engine;   ///< one engine; empty means all
  std::string options;  ///< one variant; empty means all
  std::string dtype;    ///< one of formats() in cases.h; empty means all
  std::string device = "auto";
  int64_t seed = 11;
  /// With a wrapper the batch is split over the ranks of this process's world, three steps are made
  /// instead of one, and gathered norms are compared, too. All ranks make the same call.
  sharding::ShardingOptions sharding;
  /// Hooks of all compared trainers; null: none. Deliberate mistakes are injected here (faults.h).
  std::shared_ptr<privacy::StepHooks> hooks;
};

/// One kind of layer under one engine, model, variant and dtype. The layer "all" stands for what
/// belongs to no layer: norms and factors over all parameters, and the bound after the step.
struct Cell {
  std::string engine, model, task, layer, options, dtype;
  double max_rel_err = 0;
  double tolerance = 0;
  bool ok = false;
  std::string worst;  ///< what was furthest off: "norm", "factor", "clipped sum", "weights"
  std::string error;  ///< when the step failed with an error
};

/// Norms of one run, before and after clipping, for display.
struct NormsShown {
  std::string title;
  std::vector<double> before, after, expected;
  std::vector<std::vector<double>>
      by_rank;  ///< of several ranks: each one's own, before the gather
};

struct Observer {
  std::function<void(const Cell&)> cell;
  std::function<void(const NormsShown&)> norms;
};

/// Runs the cells that the options name. Throws UsageError for a name that is not known.
std::vector<Cell> verify(const VerifyOptions& options, const Observer& observer = {});

/// {"cells": [{engine, model, layer, options, dtype, max_rel_err, ok}], "failed": n}.
Json to_json(const std::vector<Cell>& cells, const VerifyOptions& options = {});

/// The cells without running them: what `moonshard engines` promises.
struct Support {
  std::string engine;
  std::vector<std::string> layers, models, options, dtypes;
};
std::vector<Support> support_table();

}  // namespace moonshard::verify
