#include "runtime/models/family.h"

#include <algorithm>

namespace moonshard::models {

bool Family::takes(const std::string& option) const {
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), option) != names.end();
  };
  return has(options_of_every_family()) || has(description_.options);
}

void complete_head_dim(ModelOptions& o, int64_t unit) {
  if (o.head_dim != 0) return;
  MS_CHECK(o.hidden_dim % (o.num_heads * unit) == 0,
           "model '{}': expected hidden_dim = num_heads x {} head size, got {} and {} heads",
           o.model, unit == 2 ? "an even" : "a", o.hidden_dim, o.num_heads);
  o.head_dim = o.hidden_dim / o.num_heads;
}

}  // namespace moonshard::models
