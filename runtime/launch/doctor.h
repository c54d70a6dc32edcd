// The doctor: checks what moonshard needs on this machine and gives advice for each problem.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard::launch {

enum class Health { Good, Note, Problem };

struct Finding {
  std::string subject;
  Health health = Health::Good;
  std::string found;
  std::string advice;  ///< empty if no action is needed
};

std::vector<Finding> examine_machine();

Json to_json(const std::vector<Finding>& findings);

}  // namespace moonshard::launch
