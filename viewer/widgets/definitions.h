// One sentence on what a name of the records means, for tooltips: metrics, phases, owners of
// memory, columns of tables, options. docs/measurement.md says the same at length.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace moonshard::viewer {

/// Empty for a name that nobody defined: records may hold anything.
std::string_view definition_of(std::string_view key);

using Definition = std::pair<std::string_view, std::string_view>;
/// The options of an experiment; the rest is in definitions.cpp.
const std::vector<Definition>& option_definitions();

}  // namespace moonshard::viewer
