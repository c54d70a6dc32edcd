#include "viewer/data/run_data.h"

#include <fmt/format.h>

namespace moonshard::viewer {

std::string plain_number(double value) {
  return fmt::format("{:.14g}", value);
}

Value RunBuilder::text(std::string_view text) {
  const auto [place, added] =
      text_places_.try_emplace(std::string(text), static_cast<uint32_t>(run_.texts.size()));
  if (added) run_.texts.emplace_back(text);
  return {Value::Kind::Text, place->second, 0};
}

void RunBuilder::set(ValueTable& table, size_t point, std::string_view key,
                     std::string_view value) {
  set_value(table, point, key, text(value));
}

std::optional<size_t> RunBuilder::place_of(ValueTable& table, std::string_view key) {
  Columns& columns = columns_of(table);
  if (const auto found = columns.places.find(std::string(key)); found != columns.places.end())
    return found->second;
  if (table.keys.size() >= max_keys_) {
    ++num_dropped_;
    return std::nullopt;
  }
  columns.places.emplace(key, table.keys.size());
  table.keys.emplace_back(key);
  return table.keys.size() - 1;
}

void RunBuilder::set_value(ValueTable& table, size_t point, std::string_view key, Value value) {
  if (value.kind == Value::Kind::None && !columns_of(table).places.contains(std::string(key)))
    return;
  if (const std::optional<size_t> place = place_of(table, key))
    columns_of(table).entries.push_back({point, *place, value});
}

void RunBuilder::set_common(ValueTable& table, std::string_view key, Value value) {
  if (value.kind == Value::Kind::None) return;
  if (const std::optional<size_t> place = place_of(table, key))
    columns_of(table).common.emplace_back(*place, value);
}

void RunBuilder::use_common(size_t point) {
  if (uses_common_.size() <= point) uses_common_.resize(point + 1, false);
  uses_common_[point] = true;
}

void RunBuilder::finish() {
  for (ValueTable* table : {&run_.options, &run_.metrics}) {
    const Columns& columns = columns_of(*table);
    const size_t width = table->keys.size();
    table->cells.assign(run_.points.size() * width, Value());
    for (size_t point = 0; point < uses_common_.size(); ++point) {
      if (!uses_common_[point]) continue;
      for (const auto& [place, value] : columns.common) table->cells[point * width + place] = value;
    }
    for (const Entry& entry : columns.entries)
      table->cells[entry.point * width + entry.key] = entry.value;
  }
}

}  // namespace moonshard::viewer
