// moonshard verify: runs the cells, prints the results, and returns an exit code that says whether
// all hold.
#pragma once

#include "bindings/host/verbs.h"

namespace moonshard::host {

/// 0 when every cell holds, 4 when one does not.
int verify_command(const Verb& verb, const Words& words);
std::string verify_help(const Verb& verb);

}  // namespace moonshard::host
