#include "runtime/records/csv.h"

#include "runtime/base/check.h"

namespace moonshard::records {
namespace {

void append_cell(std::string& text, const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) {
    text += cell;
    return;
  }
  text += '"';
  for (char letter : cell) {
    if (letter == '"') text += '"';
    text += letter;
  }
  text += '"';
}

void append_row(std::string& text, const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) text += ',';
    append_cell(text, cells[i]);
  }
  text += '\n';
}

}  // namespace

std::string cell_text(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string to_csv(const CsvTable& table) {
  std::string text;
  append_row(text, table.columns);
  for (const auto& row : table.rows) append_row(text, row);
  return text;
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

}  // namespace moonshard::records
