// The models of a search: made once for all configurations of equal shapes, whichever thread asks
// first.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/plan/planned_model.h"
#include "runtime/plan/search.h"

namespace moonshard::plan {

// Values of the model's options that are tried.
inline Json values_of(const std::vector<std::string>& names, const models::ModelOptions& options) {
  Json values = Json::object();
  for (const std::string& name : names)
    values[name] = models::model_schema().find(name)->read(&options);
  return values;
}

// The shapes of a model do not depend on most options.
class Models {
 public:
  Models(const SearchSpace& space, const MachineProfile& machine)
      : space_(space), machine_(machine) {}
  const PlannedModel& of(const experiment::ExperimentOptions& options) {
    std::string key =
        fmt::format("{} {} {}", options.dtype, options.param_dtype, options.seq_length);
    if (!space_.resolved_axes.empty()) key += one_line(values_of(space_.resolved_axes, options));
    const std::lock_guard lock(mutex_);
    auto& known = known_[key];
    if (known == nullptr)
      known = std::make_unique<PlannedModel>(options, options.seq_length, machine_);
    return *known;
  }

 private:
  const SearchSpace& space_;
  const MachineProfile& machine_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<PlannedModel>> known_;
};

}  // namespace moonshard::plan
