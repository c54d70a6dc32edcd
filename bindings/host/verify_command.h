// moonshard verify: runs the cells, prints what was found, and says by its exit code whether all
// hold.
#pragma once

#include "bindings/host/verbs.h"

namespace moonshard::host {

/// 0 when every cell holds, 4 when one does not.
int verify_command(const Verb& verb, const Words& words);
std::string verify_help(const Verb& verb);

}  // namespace moonshard::host
