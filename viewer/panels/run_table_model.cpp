#include "viewer/panels/run_table_model.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>

#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using Kind = TableColumn::Kind;
using records::Json;

constexpr size_t kMaxColumns = 64;  // ImGui's own limit is 512; a table beyond this is unreadable

// Metrics shown at first, in this order, where a run has them.
constexpr std::array<const char*, 6> kMainMetrics = {"avg_time_ms",    "peak_memory_bytes",
                                                     "peak_memory_mb", "tokens_per_second",
                                                     "final_loss",     "epsilon"};

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

void add_new(std::vector<std::string>& list, const std::string& text) {
  if (list.size() < kMaxColumns && !contains(list, text)) list.push_back(text);
}

const Json& value_of(const Json& object, const std::string& key) {
  static const Json nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

std::vector<std::string> collect_axes(const Snapshot& snapshot) {
  std::vector<std::string> axes;
  for (const LoadedRun& loaded : snapshot.runs) {
    for (const std::string& axis : loaded.run.axes) add_new(axes, axis);
  }
  return axes;
}

std::vector<std::string> collect_metrics(const Snapshot& snapshot) {
  std::vector<std::string> present;
  for (const LoadedRun& loaded : snapshot.runs) {
    for (const records::PointRecord& point : loaded.run.points) {
      for (const auto& [key, value] : point.metrics.items()) {
        if (value.is_primitive()) add_new(present, key);
      }
    }
  }
  std::vector<std::string> ordered;
  for (const char* name : kMainMetrics) {
    if (contains(present, name)) ordered.push_back(name);
  }
  for (const std::string& name : present) add_new(ordered, name);
  return ordered;
}

std::vector<TableColumn> make_columns(const Snapshot& snapshot) {
  std::vector<TableColumn> columns;
  if (snapshot.runs.size() > 1) columns.push_back({Kind::Run, "run", "run", 1, false, true});
  columns.push_back({Kind::Status, "status", "status", 1, false, true});
  for (const std::string& axis : collect_axes(snapshot)) {
    columns.push_back({Kind::Axis, axis, axis, 1, false, true});
  }
  const std::vector<std::string> metrics = collect_metrics(snapshot);
  const bool any_known = std::any_of(metrics.begin(), metrics.end(), [](const std::string& name) {
    return std::find(kMainMetrics.begin(), kMainMetrics.end(), name) != kMainMetrics.end();
  });
  for (const std::string& metric : metrics) {
    const MetricFormat format = metric_format(metric);
    const bool known =
        std::find(kMainMetrics.begin(), kMainMetrics.end(), metric) != kMainMetrics.end();
    // The derived figure would only repeat the bytes.
    const bool repeats = metric == "peak_memory_mb" && contains(metrics, "peak_memory_bytes");
    columns.push_back({Kind::Metric, metric, with_unit(format.title, format.unit), format.factor,
                       false, (known || !any_known) && !repeats});
  }
  columns.push_back({Kind::Id, "id", "id", 1, false, false});
  if (columns.size() > kMaxColumns) columns.resize(kMaxColumns);
  return columns;
}

TableCell make_cell(const Json& value, std::string text) {
  TableCell cell;
  cell.text = std::move(text);
  cell.has_number = value.is_number();
  if (cell.has_number) cell.number = value.get<double>();
  return cell;
}

TableCell cell_of(const TableColumn& column, const records::RunFolder& run,
                  const records::PointRecord& point) {
  switch (column.kind) {
    case Kind::Run:
      return {clean_text(run.name, 256), 0, false};
    case Kind::Status:
      return {clean_text(point.status, 64), 0, false};
    case Kind::Axis:
      return make_cell(value_of(point.options, column.key),
                       format_option(value_of(point.options, column.key)));
    case Kind::Metric:
      return make_cell(value_of(point.metrics, column.key),
                       format_cell(value_of(point.metrics, column.key), column.factor));
    case Kind::Id:
      return {point.id, 0, false};
  }
  return {};
}

void mark_numeric(RunTable& table) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    size_t numbers = 0, others = 0;
    for (const TableRow& row : table.rows) {
      numbers += row.cells[c].has_number;
      others += !row.cells[c].has_number && !row.cells[c].text.empty();
    }
    table.columns[c].numeric = numbers > 0 && others == 0;
  }
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// Negative, zero or positive, as a stands before, with or after b.
int compare_cells(const TableCell& a, const TableCell& b) {
  if (a.has_number && b.has_number) return (a.number > b.number) - (a.number < b.number);
  if (a.has_number != b.has_number) return a.has_number ? -1 : 1;
  return a.text.compare(b.text);
}

}  // namespace

RunTable build_run_table(const Snapshot& snapshot) {
  RunTable table;
  table.columns = make_columns(snapshot);
  for (size_t r = 0; r < snapshot.runs.size(); ++r) {
    const records::RunFolder& run = snapshot.runs[r].run;
    for (size_t p = 0; p < run.points.size(); ++p) {
      TableRow row{r, p, {}};
      for (const TableColumn& column : table.columns) {
        row.cells.push_back(cell_of(column, run, run.points[p]));
      }
      table.rows.push_back(std::move(row));
    }
  }
  mark_numeric(table);
  return table;
}

bool matches_filter(const TableRow& row, std::string_view filter) {
  size_t at = 0;
  while ((at = filter.find_first_not_of(' ', at)) != std::string_view::npos) {
    const size_t end = std::min(filter.find(' ', at), filter.size());
    const std::string word = lower(filter.substr(at, end - at));
    const bool found = std::any_of(row.cells.begin(), row.cells.end(), [&](const TableCell& cell) {
      return lower(cell.text).find(word) != std::string::npos;
    });
    if (!found) return false;
    at = end;
  }
  return true;
}

std::vector<size_t> visible_rows(const RunTable& table, std::string_view filter, size_t column,
                                 bool descending) {
  std::vector<size_t> rows;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    if (matches_filter(table.rows[i], filter)) rows.push_back(i);
  }
  if (column >= table.columns.size()) return rows;
  std::stable_sort(rows.begin(), rows.end(), [&](size_t left, size_t right) {
    const TableCell& a = table.rows[left].cells[column];
    const TableCell& b = table.rows[right].cells[column];
    if (a.text.empty() != b.text.empty()) return b.text.empty();
    const int order = compare_cells(a, b);
    return descending ? order > 0 : order < 0;
  });
  return rows;
}

}  // namespace moonshard::viewer
