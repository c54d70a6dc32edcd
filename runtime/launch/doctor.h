// The doctor: looks at what moonshard needs on this machine and says what to do about each problem.
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
  std::string advice;  ///< empty when nothing need be done
};

std::vector<Finding> examine_machine();

Json to_json(const std::vector<Finding>& findings);

}  // namespace moonshard::launch
