#include "viewer/data/run_data.h"

#include <fmt/format.h>

namespace moonshard::viewer {

std::string plain_number(double value) {
  return fmt::format("{:.14g}", value);
}

void RunBuilder::set(ValueTable& table, size_t point, std::string_view key,
                     std::string_view value) {
  const auto [place, added] =
      text_places_.try_emplace(std::string(value), static_cast<uint32_t>(run_.texts.size()));
  if (added) run_.texts.emplace_back(value);
  set_value(table, point, key, {Value::Kind::Text, place->second, 0});
}

void RunBuilder::set_value(ValueTable& table, size_t point, std::string_view key, Value value) {
  Columns& columns = columns_of(table);
  if (table.keys.size() >= max_keys_ && !columns.places.contains(std::string(key))) {
    ++num_dropped_;
    return;
  }
  const auto [place, added] = columns.places.try_emplace(std::string(key), table.keys.size());
  if (added) table.keys.emplace_back(key);
  columns.entries.push_back({point, place->second, value});
}

void RunBuilder::finish() {
  for (ValueTable* table : {&run_.options, &run_.metrics}) {
    table->cells.assign(run_.points.size() * table->keys.size(), Value());
    for (const Entry& entry : columns_of(*table).entries) {
      table->cells[entry.point * table->keys.size() + entry.key] = entry.value;
    }
  }
}

}  // namespace moonshard::viewer
