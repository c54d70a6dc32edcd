// The run table without its drawing: which columns there are, what the cells say, which rows a
// filter keeps and in which order a column puts them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "viewer/document.h"

namespace moonshard::viewer {

struct TableColumn {
  enum class Kind { Run, Status, Axis, Metric, Id };
  Kind kind = Kind::Status;
  std::string key;       ///< option or metric name
  std::string title;     ///< with the unit in brackets
  double factor = 1.0;   ///< shown number = stored number * factor
  bool numeric = false;  ///< all its values are numbers: right-aligned, sorted by size
  bool main = true;      ///< shown at first; others wait in the column menu
};

struct TableCell {
  std::string text;
  double number = 0;  ///< stored value, when has_number
  bool has_number = false;
};

struct TableRow {
  size_t run = 0, point = 0;  ///< indices into the snapshot
  std::vector<TableCell> cells;
};

struct RunTable {
  std::vector<TableColumn> columns;
  std::vector<TableRow> rows;
};

/// Builds the table of all points of all runs.
RunTable build_run_table(const Snapshot& snapshot);

/// True when every word of the filter occurs in some cell of the row, whatever the case.
bool matches_filter(const TableRow& row, std::string_view filter);

/// Indices of the rows that match, ordered by a column. Rows without a value come last either way;
/// equal rows keep the sweep's order. An out-of-range column keeps the sweep's order.
std::vector<size_t> visible_rows(const RunTable& table, std::string_view filter, size_t column,
                                 bool descending);

}  // namespace moonshard::viewer
