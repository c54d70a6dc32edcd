// What a group of units does otherwise than the rest of the model (option unit_policies): the dtype
// it computes in, that of its reduced gradients, whether it is released between forward and
// backward, and whether its parts live on the host. Needs no torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::sharding {

/// As the user gives it: what is left out is as for the rest of the model.
struct UnitPolicy {
  std::vector<std::string> globs;  ///< of unit names
  std::string dtype, reduce_dtype;
  std::optional<bool> reshard, offload;
};

/// Of option unit_policies: "model.layers.*: reshard = no; root: dtype = float32, offload = yes".
/// Throws UsageError for a text of another form.
std::vector<UnitPolicy> parse_unit_policies(const std::string& text);
/// The text that is parsed to these.
std::string unit_policies_text(const std::vector<UnitPolicy>& policies);
/// Of { { units = globs, dtype = …, reduce_dtype = …, reshard = …, offload = … }, … }. `where`
/// opens every error text.
std::vector<UnitPolicy> unit_policies_from_json(const std::string& where, const Json& list);

/// What holds for one unit, from the options and the first policy that matches its name.
struct UnitSettings {
  std::string dtype = "auto";         ///< of the computation; auto: the model's
  std::string reduce_dtype = "auto";  ///< of reduced gradients; auto: that of the sums
  /// Released after forward, and gathered again for backward. The root, whose layers run first and
  /// last, is released while the others run.
  bool reshard = false;
  bool offload = false;  ///< its parts are in host memory
};
UnitSettings settings_of(const std::string& unit, bool is_root, const ShardingOptions& options,
                         const std::vector<UnitPolicy>& policies);

/// Throws UsageError for policies that the wrapper cannot follow.
void check_unit_policies(const ShardingOptions& options);
/// Throws UsageError for a glob that matches none of the units.
void check_globs(const std::vector<UnitPolicy>& policies, const std::vector<std::string>& units);

/// Whether parts of some unit are in host memory.
bool offloads_some(const ShardingOptions& options);
/// Whether some unit's gradients are reduced in that dtype, by option or by policy.
bool reduces_some_in(const ShardingOptions& options, const std::string& dtype);

}  // namespace moonshard::sharding
