// Which layers make a unit.
#pragma once

#include <string>
#include <vector>

#include "runtime/models/model.h"
#include "runtime/sharding/sharding_options.h"
#include "runtime/sharding/unit_policy.h"

namespace moonshard::sharding {

struct UnitPlan {
  std::string name;
  bool is_root = false;      ///< what is in no other unit
  bool in_backward = false;  ///< not all of it runs before the first layer that is trained
  UnitSettings settings;
  std::vector<const models::ParamLayer*> layers;
  std::vector<models::Parameter*> parameters;  ///< each belongs to one unit, however often used
};

/// In the order of the forward pass, the root first. Every layer is in one unit: that of its
/// weight. Throws UsageError for a glob of unit_policies that matches none.
std::vector<UnitPlan> plan_units(const models::Model& model, const ShardingOptions& options);

/// The same check from options alone, before a model is built.
void check_units(const models::ModelOptions& model, const ShardingOptions& options);

/// Layers of units with a dtype of their own compute in it, in a model that nothing wraps: for
/// references to compare wrappers with. Those that wrap do the same for as long as they live.
void set_compute_types(models::Model& model, const ShardingOptions& options);

}  // namespace moonshard::sharding
