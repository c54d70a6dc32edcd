// moonshard audit: runs the audit, prints the bounds beside the claimed epsilon, and returns an
// exit code that says whether a bound exceeds it.
#pragma once

#include "bindings/host/verbs.h"

namespace moonshard::host {

/// 0 when no bound is above the claim, 4 when one is.
int audit_command(const Verb& verb, const Words& words);
std::string audit_help(const Verb& verb);

}  // namespace moonshard::host
