// Small JSON files that come with weights (config.json, the index of shards); untrusted. Unlike
// the records' reader this one keeps keys sorted: a map with 100,000 names takes no quadratic time.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

namespace moonshard::weights {

struct ForeignLimits {
  size_t max_bytes = 0;
  size_t max_values = 0;  ///< of all kinds together, which bounds the memory
  int max_depth = 32;
};

/// Throws IoError "path: …" for what is not one object of JSON within the limits, or has a key
/// twice.
nlohmann::json read_foreign_json(const std::filesystem::path& path, const ForeignLimits& limits);

}  // namespace moonshard::weights
