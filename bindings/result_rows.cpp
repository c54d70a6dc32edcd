#include "bindings/result_rows.h"

#include <algorithm>

#include "runtime/privacy/engine_names.h"

namespace moonshard::bindings {
namespace {

/// Reads a part of a record by its list of fields (records/schema.h).
class LuaPart {
 public:
  explicit LuaPart(sol::object table) : table_(std::move(table)) {}

  template <class T>
  void operator()(const records::Field& info, T& member) {
    read(field(table_, info.key), member);
  }

 private:
  static void read(const sol::object& value, double& member) { member = number_of(value); }
  static void read(const sol::object& value, std::string& member) { member = string_of(value); }
  static void read(const sol::object& list, records::Labels& member) {
    each_item(list, [&](const sol::object& item) { member.add(string_of(item)); });
  }
  template <class T>
  static void read(const sol::object& list, std::vector<T>& member) {
    each_item(list, [&](const sol::object& item) { read(item, member.emplace_back()); });
  }
  template <class T>
  static void read(const sol::object& table, std::vector<records::Named<T>>& member) {
    if (table.get_type() != sol::type::table) return;
    for (const auto& [name, value] : table.as<sol::table>()) {
      member.push_back({string_of(name), {}});
      read(value, member.back().value);
    }
  }
  template <class T>
  requires std::is_class_v<T>
  static void read(const sol::object& table, T& member) {
    LuaPart part(table);
    fields(part, member);
  }

  sol::object table_;
};

/// What analyses look into. Samples, steps and timelines of owners are left: they are long.
std::shared_ptr<const records::Result> detail_of(const sol::object& table) {
  auto result = std::make_shared<records::Result>();
  const sol::object memory = field(table, "memory");
  const auto read = [](const sol::object& of, const char* key, auto& member) {
    LuaPart{of}({key, records::Unit::None, ""}, member);
  };
  read(field(table, "time"), "phases_ms", result->time.phases_ms);
  read(memory, "breakdown", result->memory.breakdown);
  read(field(memory, "timeline"), "phase", result->memory.timeline.phase);
  read(field(memory, "timeline"), "total", result->memory.timeline.total);
  read(table, "norms_ms", result->norms_ms);
  read(table, "layers", result->layers);
  const sol::object fake = field(field(table, "sharding"), "fake");
  result->sharding.fake = fake.get_type() == sol::type::boolean && fake.as<bool>();
  return result;
}

}  // namespace

double number_of(const sol::object& value) {
  return value.get_type() == sol::type::number ? value.as<double>() : NAN;
}

std::string string_of(const sol::object& value) {
  return value.get_type() == sol::type::string ? value.as<std::string>() : std::string();
}

analysis::Value value_of(const sol::object& value) {
  switch (value.get_type()) {
    case sol::type::boolean:
      return value.as<bool>();
    case sol::type::number:
      return value.as<double>();
    case sol::type::string:
      return value.as<std::string>();
    default:
      return {};
  }
}

std::vector<std::string> strings_of(const sol::object& list) {
  std::vector<std::string> strings;
  each_item(list, [&](const sol::object& item) { strings.push_back(string_of(item)); });
  return strings;
}

analysis::Value canonical_value(const std::string& option, analysis::Value value) {
  if (const auto* word = std::get_if<std::string>(&value); word != nullptr && option == "mode")
    return privacy::canonical_engine(*word);
  return value;
}

analysis::Row row_of(const sol::object& point, const analysis::Table& table, bool with_detail) {
  analysis::Row row;
  const sol::object options = field(point, "options"), asked = field(point, "asked");
  row.status = string_of(field(point, "status"));
  row.mode = string_of(field(options, "mode"));
  for (const std::string& name : table.options)
    row.values.push_back(canonical_value(name, value_of(field(options, name))));
  for (const std::string& axis : table.axes) {
    const analysis::Value word = value_of(field(asked, axis));
    const bool has_word = word != analysis::Value() && word != analysis::Value(false);
    const analysis::Value shown = has_word ? word : value_of(field(options, axis));
    row.shown.push_back(analysis::text_of(shown));
    // A bare number or truth value says nothing without its option.
    const bool speaks = std::holds_alternative<std::string>(shown);
    row.label += (row.label.empty() ? "" : ", ") + (speaks ? "" : axis + " ") + row.shown.back();
  }
  if (table.axes.empty()) row.label = row.mode;
  LuaPart metrics(field(point, "metrics"));
  fields(metrics, row.metrics);
  if (with_detail) row.detail = detail_of(field(point, "result"));
  return row;
}

analysis::Table table_of(const sol::object& results, const std::string& option, bool with_detail) {
  analysis::Table table;
  table.axes = table.options = strings_of(field(results, "axes"));
  if (!option.empty() &&
      std::find(table.axes.begin(), table.axes.end(), option) == table.axes.end())
    table.options.push_back(option);
  each_item(field(results, "points"), [&](const sol::object& point) {
    table.rows.push_back(row_of(point, table, with_detail));
  });
  return table;
}

}  // namespace moonshard::bindings
