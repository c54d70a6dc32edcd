#include "runtime/records/run_index.h"

#include "runtime/records/csv.h"

namespace moonshard::records {

RunIndex::RunIndex(const RunFolder& run) : axes_(run.axes) {
  for (const PointRecord& point : run.points) update(point);
}

void RunIndex::update(const PointRecord& point) {
  const auto [place, is_new] = rows_.try_emplace(point.id);
  if (is_new) ids_.push_back(point.id);
  Row& row = place->second;
  row.status = point.status;
  row.error = point.error;
  // A record that never came leaves the planned options, which only the whole folder knows.
  if (is_new || !point.options.empty()) {
    row.axis_cells.clear();
    for (const std::string& axis : axes_)
      row.axis_cells.push_back(cell_text(point.options.value(axis, Json())));
  }
  row.metrics.clear();
  for (const auto& [key, value] : point.metrics.items()) {
    if (!value.is_primitive()) continue;
    row.metrics[key] = cell_text(value);
    metric_names_.insert(key);
  }
}

std::string RunIndex::csv() const {
  CsvTable table;
  table.columns = {"id", "status"};
  table.columns.insert(table.columns.end(), axes_.begin(), axes_.end());
  table.columns.insert(table.columns.end(), metric_names_.begin(), metric_names_.end());
  table.columns.push_back("error");
  for (const std::string& id : ids_) {
    const Row& row = rows_.at(id);
    std::vector<std::string> cells{id, row.status};
    cells.insert(cells.end(), row.axis_cells.begin(), row.axis_cells.end());
    for (const std::string& name : metric_names_) {
      const auto found = row.metrics.find(name);
      cells.push_back(found != row.metrics.end() ? found->second : "");
    }
    cells.push_back(row.error);
    table.rows.push_back(std::move(cells));
  }
  return to_csv(table);
}

}  // namespace moonshard::records
