// Rows for runtime/analysis from the tables of ms.load. Records are untrusted input: a figure that
// is absent or of another type counts as not measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bindings/sol.h"
#include "runtime/analysis/rows.h"

namespace moonshard::bindings {

/// table[key], or nil; also nil if it is not a table. Metamethods are not called.
template <class Key>
sol::object field(const sol::object& table, const Key& key) {
  if (table.get_type() != sol::type::table)
    return sol::make_object(table.lua_state(), sol::lua_nil);
  return table.as<sol::table>().raw_get<sol::object>(key);
}

/// Items 1, 2, … up to the first that is nil.
template <class F>
void each_item(const sol::object& list, F use) {
  for (int i = 1;; ++i) {
    const sol::object item = field(list, i);
    if (item.get_type() == sol::type::lua_nil) return;
    use(item);
  }
}

/// NaN if it is not a number.
double number_of(const sol::object& value);
/// Empty if it is not a string.
std::string string_of(const sol::object& value);
/// Empty if it is neither a boolean nor a number nor a string.
analysis::Value value_of(const sol::object& value);
std::vector<std::string> strings_of(const sol::object& list);

/// The engine's own name where the option is the mode: scripts may say "no_dp" for "none".
analysis::Value canonical_value(const std::string& option, analysis::Value value);

/// A point as a row of a table with these axes and options.
analysis::Row row_of(const sol::object& point, const analysis::Table& table, bool with_detail);

/// The points of results. `option`, which need not be swept, is among the rows' values.
analysis::Table table_of(const sol::object& results, const std::string& option, bool with_detail);

}  // namespace moonshard::bindings
