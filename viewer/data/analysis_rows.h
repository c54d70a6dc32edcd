// Runs as the rows that runtime/analysis reads: Lua scripts use the same functions.
#pragma once

#include "runtime/analysis/rows.h"
#include "viewer/data/run_data.h"

namespace moonshard::viewer {

analysis::Value analysis_value(const RunData& run, const Value& value);

records::Metrics analysis_metrics(const RunData& run, size_t point);

/// One table per run, without details: the values of everything that is swept in any of them, and
/// of `option`. Modes are engines' own names; labels are the points' ids.
std::vector<analysis::Table> analysis_tables(const std::vector<const RunData*>& runs,
                                             const std::string& option);

}  // namespace moonshard::viewer
