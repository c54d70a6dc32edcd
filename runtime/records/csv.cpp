#include "runtime/records/csv.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/check.h"
#include "runtime/records/schema_json.h"

namespace moonshard::records {
namespace {

bool is_number(const std::string& cell) {
  double value = 0;
  const char* begin = cell.data() + (cell.starts_with('+') ? 1 : 0);
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  return stop == end && error != std::errc::invalid_argument;
}

void append_cell(std::string& text, const std::string& cell) {
  const bool is_formula = !cell.empty() &&
                          std::string_view("=+-@\t\r").find(cell[0]) != std::string_view::npos &&
                          !is_number(cell);
  if (cell.find_first_of(",\"\r\n") == std::string::npos) {
    if (is_formula) text += '\'';
    text += cell;
    return;
  }
  text += '"';
  if (is_formula) text += '\'';
  for (char letter : cell) {
    if (letter == '"') text += '"';
    text += letter;
  }
  text += '"';
}

// The part's columns in the schema's order, as far as a row has them, then those made of names
// (phases, owners) in the order in which rows first have them.
std::string table_of(const std::vector<std::string>& keys, const std::vector<Json>& rows) {
  CsvTable table;
  for (const std::string& key : keys) {
    const auto has = [&](const Json& row) { return row.contains(key); };
    if (std::any_of(rows.begin(), rows.end(), has)) table.columns.push_back(key);
  }
  for (const Json& row : rows)
    for (const auto& [key, value] : row.items())
      if (std::find(table.columns.begin(), table.columns.end(), key) == table.columns.end())
        table.columns.push_back(key);
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& column : table.columns)
      cells.push_back(cell_text(row.value(column, Json())));
    table.rows.push_back(std::move(cells));
  }
  return to_csv(table);
}

std::vector<Json> list(const Json& record, const char* key) {
  if (!record.contains(key) || !record[key].is_array()) return {};
  for (const Json& row : record[key])
    MS_CHECK(row.is_object(), "record: {}: expected a list of objects, got {} in it", key,
             one_line(row).substr(0, 60));
  return record[key].get<std::vector<Json>>();
}

// {"phases_ms": {"forward": 1}} becomes {"forward_ms": 1}.
std::vector<Json> step_rows(const Json& record) {
  std::vector<Json> rows;
  for (const Json& step : list(record, "steps")) {
    Json row = Json::object();
    for (const auto& [key, value] : step.items()) {
      if (key != "phases_ms") {
        row[key] = value;
      } else if (value.is_object()) {
        for (const auto& [phase, ms] : value.items()) row[phase + "_ms"] = ms;
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// at() instead of operator[]: records of others are read here, too.
void add_timeline(const Json& timeline, std::vector<Json>& rows) {
  const size_t count = timeline.at("ms").size();
  const Json owners = timeline.value("owners", Json::object());
  for (size_t i = 0; i < count; ++i) {
    Json row{{"stage", "timeline " + timeline.at("phase").at(i).get<std::string>()},
             {"ms", timeline.at("ms").at(i)},
             {"allocated_bytes", timeline.at("total").at(i)}};
    for (const auto& [owner, bytes] : owners.items()) row[owner + "_bytes"] = bytes.at(i);
    rows.push_back(std::move(row));
  }
}

// Stages first, then the timeline of the detailed step.
std::vector<Json> memory_rows(const Json& record) {
  std::vector<Json> rows = list(record, "memory_stages");
  if (!record.contains("memory") || !record["memory"].contains("timeline")) return rows;
  try {
    add_timeline(record["memory"]["timeline"], rows);
  } catch (const Json::exception& error) {
    throw UsageError(
        fmt::format("record: memory.timeline: expected lists ms, phase, total and those "
                    "of owners, all of one length, got others: {}",
                    error.what()));
  }
  return rows;
}

}  // namespace

std::string cell_text(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string to_csv(const CsvTable& table) {
  std::string text;
  text += csv_row(table.columns);
  for (const auto& row : table.rows) text += csv_row(row);
  return text;
}

std::string csv_row(const std::vector<std::string>& cells) {
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) text += ',';
    append_cell(text, cells[i]);
  }
  return text + '\n';
}

CsvTable parse_csv(std::string_view text, const std::string& where, size_t max_rows) {
  CsvTable table;
  std::vector<std::string> row(1);
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (quoted) {
      if (letter != '"') {
        row.back() += letter;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        row.back() += text[++i];
      } else {
        quoted = false;
      }
    } else if (letter == '"') {
      quoted = true;
    } else if (letter == ',') {
      row.emplace_back();
    } else if (letter == '\n') {
      if (table.columns.empty()) {
        table.columns = std::move(row);
      } else {
        row.resize(table.columns.size());
        table.rows.push_back(std::move(row));
        if (table.rows.size() > max_rows) {
          throw IoError(fmt::format("{}: expected at most {} rows, got more", where, max_rows));
        }
      }
      row.assign(1, "");
    } else if (letter != '\r') {
      row.back() += letter;
    }
  }
  // A last line without its newline is a write in progress: whatever it says is not whole.
  return table;
}

std::vector<std::pair<std::string, std::string>> point_tables(const Json& record) {
  std::vector<std::pair<std::string, std::string>> tables;
  const auto add = [&](const char* name, const std::vector<std::string>& keys,
                       const std::vector<Json>& rows) {
    if (!rows.empty()) tables.emplace_back(name, table_of(keys, rows));
  };
  add("steps.csv", keys_of<StepRow>(), step_rows(record));
  add("memory.csv", keys_of<MemoryStage>(), memory_rows(record));
  add("comm.csv", keys_of<Collective>(), list(record, "comm"));
  add("layers.csv", keys_of<LayerTime>(), list(record, "layers"));
  return tables;
}

}  // namespace moonshard::records
