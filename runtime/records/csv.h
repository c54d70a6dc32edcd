// Comma-separated tables with a header line, quoted where needed (RFC 4180).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard::records {

struct CsvTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  ///< each as long as columns
};

/// Texts that a spreadsheet would take for a formula (=, +, -, @ first, and no number) get a ' in
/// front: cells may come from records of others.
std::string to_csv(const CsvTable& table);
/// One line of it.
std::string csv_row(const std::vector<std::string>& cells);

/// A value as a cell: text as it is, nothing for null, JSON for all else.
std::string cell_text(const Json& value);

/// Parses text; short rows are padded, a torn last line is dropped. Throws IoError above max_rows.
CsvTable parse_csv(std::string_view text, const std::string& where, size_t max_rows = 10'000'000);

// A point's record as tables beside it, for spreadsheets and data frames: steps.csv, memory.csv,
// comm.csv, layers.csv. Each row is one step, one stage or sample, one kind of collective, one
// layer.

/// (file name, text) of those tables that the record has rows for.
std::vector<std::pair<std::string, std::string>> point_tables(const Json& record);

}  // namespace moonshard::records
