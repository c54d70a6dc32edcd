// Which traces a path means: a file itself, or those of a rank in the folder of a point, of a run,
// or of a configuration as TensorBoard's plugin lays them out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace moonshard::tracing {

/// Sorted. A file is itself, whatever it holds. A run's folder: of all of its points. None where
/// nothing is there.
std::vector<std::string> traces_at(const std::filesystem::path& path, int64_t rank);

}  // namespace moonshard::tracing
