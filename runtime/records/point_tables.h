// A point's record as tables beside it, for spreadsheets and data frames: steps.csv, memory.csv,
// comm.csv, layers.csv. Each row is one step, one stage or sample, one kind of collective, one
// layer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard::records {

/// (file name, text) of those tables that the record has rows for.
std::vector<std::pair<std::string, std::string>> point_tables(const Json& record);

}  // namespace moonshard::records
