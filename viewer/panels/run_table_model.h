// The run table without its drawing: which columns there are, what their cells say, in which order
// and groups the shown points stand.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "viewer/workspace.h"

namespace moonshard::viewer {

struct TableColumn {
  enum class Kind { Run, Status, Option, Metric, Overhead, Id, Error, Name };
  Kind kind = Kind::Status;
  std::string key;       ///< option, metric or overhead name; unique together with the kind
  std::string title;     ///< with the unit in brackets
  double factor = 1.0;   ///< shown number = stored number * factor
  bool numeric = false;  ///< all its values are numbers: right-aligned, sorted by size
  bool differs = false;  ///< not the same for all shown points
  bool main = false;     ///< shown at first

  /// Kind and key as one text, e.g. "option:mode"; kept in the settings.
  std::string id() const;
};

/// Every column that the open folders have. What tells points apart comes first (the run, then the
/// options, or one column with all of their words where they are many), then time, memory and what
/// both are against the baseline, what a script's own function measured, then status, other metrics
/// and options, id.
std::vector<TableColumn> all_columns(const Workspace& workspace);

/// Fills in which of them are numbers only, and in which the shown points differ.
void describe_columns(const Workspace& workspace, std::vector<TableColumn>& columns);

/// What a cell says; empty where the point has no such value.
std::string cell_text(const Workspace& workspace, const TableColumn& column, PointRef ref);

/// How the rows stand.
struct TableOrder {
  const TableColumn* sort = nullptr;  ///< nullptr: the sweep's order
  bool descending = false;
  const TableColumn* group = nullptr;  ///< nullptr: no groups
  std::set<std::string> closed;        ///< groups whose rows are folded away
};

/// One line of the table: the head of a group, or a point.
struct TableLine {
  bool is_group = false;
  PointRef ref;       ///< of a point
  std::string group;  ///< of a head: what its points have in common
  size_t num_points = 0;
};

/// Lines of all shown points. Pinned ones stand first, within their group. Rows without a value
/// come last either way; equal rows keep the sweep's order.
std::vector<TableLine> table_lines(const Workspace& workspace, const TableOrder& order);

}  // namespace moonshard::viewer
