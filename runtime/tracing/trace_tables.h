// The analyses of traces as tables, for Lua and the command line.
#pragma once

#include <string>

#include "runtime/base/json.h"

namespace moonshard::tracing {

/// `options`: step (from 1; the last one), segments (true: every part of the path).
Json path_table(const std::string& file, const Json& options);
/// `options`: step, norms, noise, measured_ms, update_gb_per_s (by the device's name), rules: list
/// of { subject, glob, factor }.
Json what_if_table(const std::string& file, const Json& options);
Json diff_table(const std::string& before, const std::string& after);

}  // namespace moonshard::tracing
