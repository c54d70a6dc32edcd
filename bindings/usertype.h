// Bound C++ types. Methods are looked up first; what is not a method goes to the type's own field
// reader, which names the valid fields when it is asked for another.
#pragma once

#include "bindings/docs.h"

namespace moonshard::bindings {

/// Registers a type under a name that only errors show; it is no global.
template <class T>
sol::usertype<T> new_type(lua_State* L, const char* name) {
  sol::state_view lua(L);
  sol::usertype<T> type = lua.new_usertype<T>(name, sol::no_constructor);
  lua[name] = sol::lua_nil;
  return type;
}

/// Gives a type the functions of a table as methods. Their names and those of its fields go into
/// the metatable's __members, where the REPL's completion finds them.
template <class T>
void add_methods(sol::usertype<T>& type, const sol::table& methods,
                 const std::vector<std::string>& fields = {}) {
  lua_State* L = methods.lua_state();
  std::vector<std::string> members = fields;
  for (const auto& [name, function] : methods) {
    type[name.template as<std::string>()] = function;
    members.push_back(name.template as<std::string>());
  }
  sol::table metatable = sol::state_view(L).registry()[sol::usertype_traits<T>::metatable()];
  metatable["__members"] = sol::as_table(members);
}

/// Field reads that are not methods, e.g. tensor.shape.
template <class T, class F>
void add_fields(sol::usertype<T>& type, const char* type_name, F read) {
  type[sol::meta_function::index] = [type_name, read](sol::variadic_args args) {
    return read(Arguments(args, type_name));
  };
}

/// tostring(object).
template <class T, class F>
void add_text(sol::usertype<T>& type, const char* type_name, F describe) {
  type[sol::meta_function::to_string] = [type_name, describe](sol::variadic_args args) {
    return describe(Arguments(args, "tostring").template self<T>(type_name));
  };
}

}  // namespace moonshard::bindings
