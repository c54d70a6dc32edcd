// Which layers make a unit.
#pragma once

#include <string>
#include <vector>

#include "runtime/models/model.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::sharding {

struct UnitPlan {
  std::string name;
  bool is_root = false;  ///< what is in no other unit: stays whole from forward to backward
  std::vector<const models::ParamLayer*> layers;
  std::vector<models::Parameter*> parameters;  ///< each belongs to one unit, however often used
};

/// In the order of the forward pass, the root first. Every layer is in one unit: that of its
/// weight.
std::vector<UnitPlan> plan_units(const models::Model& model, const ShardingOptions& options);

}  // namespace moonshard::sharding
