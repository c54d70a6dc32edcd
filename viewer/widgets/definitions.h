// What a name of the records means, in a sentence or two, for tooltips: metrics, phases, owners of
// memory, columns of tables, options. Options, phases and owners are described in the program's own
// words (experiment_options.h, owner_names.h); docs/measurement.md has the
// details.
#pragma once

#include <string_view>

namespace moonshard::viewer {

/// Empty for an unknown name: records may hold anything.
std::string_view definition_of(std::string_view key);

}  // namespace moonshard::viewer
