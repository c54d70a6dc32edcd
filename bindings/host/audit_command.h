// moonshard audit: canaries against the real training step, a table of bounds beside the claim, and
// an exit code that says whether a bound is above it.
#pragma once

#include <string>
#include <vector>

#include "runtime/audit/audit.h"

namespace moonshard::host {

/// The verb's options, and the wrapper's.
std::string audit_help();

/// 0 when no bound is above the claim, 4 when one is. `fault` names a deliberate mistake, or is
/// empty; `words` are the options.
int audit_command(const std::vector<std::string>& words, bool as_json, const std::string& fault);

}  // namespace moonshard::host
