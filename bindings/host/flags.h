// Experiment options on the command line, by the one schema: --batch-size 4, --batch_size=4,
// batch_size=4.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/options.h"

namespace moonshard::host {

/// Reads words into an option struct. Throws UsageError for unknown names, bad values, missing
/// values.
void read_flags(const OptionSchema& schema, const std::vector<std::string>& words, void* target);

/// The help text of all options: name, type, default, meaning.
std::string describe_flags(const OptionSchema& schema, const void* defaults);

}  // namespace moonshard::host
