// JSON of others that is in memory already, for those who must look at its text as well
// (read_foreign_json of json.h opens a file by itself).
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "runtime/base/json.h"

namespace moonshard {

/// Throws IoError "where: …" for what is not one object of JSON within the limits, or has a key
/// twice.
nlohmann::json parse_foreign_json(const std::string& text, const std::string& where,
                                  const ForeignLimits& limits);

}  // namespace moonshard
