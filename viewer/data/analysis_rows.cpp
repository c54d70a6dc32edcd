#include "viewer/data/overhead.h"

#include <map>
#include <set>

#include "runtime/privacy/engine_names.h"

namespace moonshard::viewer {
namespace {

// Where a run has the metrics of the schema, in its order: a column is looked for once.
std::vector<std::optional<size_t>> metric_columns(const RunData& run) {
  std::vector<std::optional<size_t>> columns;
  const auto find = [&](const records::Field& field, const double&) {
    columns.push_back(run.metrics.find(field.key));
  };
  records::Metrics metrics;
  fields(find, metrics);
  return columns;
}

records::Metrics metrics_at(const RunData& run, size_t point,
                            const std::vector<std::optional<size_t>>& columns) {
  records::Metrics metrics;
  size_t next = 0;
  const auto read = [&](const records::Field&, double& metric) {
    const std::optional<size_t> column = columns[next++];
    if (!column) return;
    const Value& value = run.metrics.at(point, *column);
    if (value.kind == Value::Kind::Number) metric = value.number;
  };
  fields(read, metrics);
  return metrics;
}

analysis::Value analysis_value(const RunData& run, const Value& value) {
  if (value.kind == Value::Kind::None) return {};
  if (value.kind == Value::Kind::Bool) return value.number != 0;
  if (value.kind == Value::Kind::Number) return value.number;
  return run.text_of(value);
}

void fill_values(const RunData& run, const std::string& option,
                 const std::map<std::string, std::string>& aliases,
                 std::vector<analysis::Row>& rows) {
  const std::optional<size_t> column = run.options.find(option);
  for (size_t p = 0; p < rows.size(); ++p) {
    analysis::Value value;
    if (column) value = analysis_value(run, run.options.at(p, *column));
    if (auto* word = std::get_if<std::string>(&value); word != nullptr && option == "mode") {
      const auto alias = aliases.find(*word);
      if (alias != aliases.end()) *word = alias->second;
    }
    rows[p].values.push_back(std::move(value));
  }
}

}  // namespace

std::string plain_text(const RunData& run, const Value& value) {
  return value.kind == Value::Kind::None ? "" : analysis::text_of(analysis_value(run, value));
}

records::Metrics analysis_metrics(const RunData& run, size_t point) {
  return metrics_at(run, point, metric_columns(run));
}

std::vector<analysis::Table> analysis_tables(const std::vector<const RunData*>& runs,
                                             const std::string& option) {
  std::set<std::string> options{option};
  for (const RunData* run : runs) options.insert(run->axes.begin(), run->axes.end());
  const std::map<std::string, std::string> aliases = privacy::engine_aliases();
  std::vector<analysis::Table> tables(runs.size());
  for (size_t r = 0; r < runs.size(); ++r) {
    analysis::Table& table = tables[r];
    table.axes = runs[r]->axes;
    table.options.assign(options.begin(), options.end());
    const std::vector<std::optional<size_t>> columns = metric_columns(*runs[r]);
    table.rows.resize(runs[r]->points.size());
    for (size_t p = 0; p < table.rows.size(); ++p) {
      table.rows[p].label = runs[r]->points[p].id;
      table.rows[p].status = runs[r]->points[p].status;
      table.rows[p].metrics = metrics_at(*runs[r], p, columns);
    }
    for (const std::string& name : table.options) fill_values(*runs[r], name, aliases, table.rows);
  }
  return tables;
}

}  // namespace moonshard::viewer
