// Reads the arguments of a bound function. Every check throws a C++ exception that names the
// function and the argument; no luaL_check* is used, so that no Lua error jumps over live C++
// objects. A missing or wrong self ("obj.method()" for "obj:method()") is an error like any other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bindings/sol.h"
#include "runtime/records/json.h"

namespace moonshard::bindings {

using records::Json;

class Arguments {
 public:
  Arguments(const sol::variadic_args& args, const char* function)
      : state_(args.lua_state()),
        first_(args.stack_index()),
        top_(lua_gettop(args.lua_state())),
        function_(function) {}

  lua_State* state() const { return state_; }
  int count() const { return top_ - first_ + 1; }
  /// True when argument n (from 1) is absent or nil.
  bool missing(int n) const { return n > count() || lua_isnil(state_, index(n)); }

  /// Argument n as a bound C++ object of type T; `what` names the type for the error.
  template <class T>
  T& object(int n, const char* what) const;
  /// The object that the method was called on.
  template <class T>
  T& self(const char* what) const;
  template <class T>
  bool is(int n) const;

  double number(int n, const char* what) const;
  /// Whole numbers that a double holds exactly, and LuaJIT's int64 and uint64 values.
  int64_t integer(int n, const char* what) const;
  std::string text(int n, const char* what) const;
  bool boolean(int n, const char* what) const;
  /// A list of whole numbers, given as one table or as all remaining arguments.
  std::vector<int64_t> sizes(int n, const char* what) const;
  /// A table as JSON; absent counts as an empty object.
  Json options(int n) const;
  /// Any value as JSON.
  Json json(int n) const;
  sol::table table(int n, const char* what) const;
  sol::protected_function function(int n, const char* what) const;
  sol::object value(int n) const;

  [[noreturn]] void fail(int n, const std::string& expected) const;
  const char* function_name() const { return function_; }

 private:
  int index(int n) const { return first_ + n - 1; }

  lua_State* state_;
  int first_, top_;
  const char* function_;
};

/// The integer at a stack position, when it is one that loses no digits: a whole double up to 2^53,
/// or a LuaJIT int64 or uint64 value up to 2^63 - 1.
std::optional<int64_t> exact_integer(lua_State* L, int index);

/// Short text of the value at a stack position: "nil", "'text'", "table", "12.5".
std::string describe_value(lua_State* L, int index);

template <class T>
bool Arguments::is(int n) const {
  return n <= count() && lua_isuserdata(state_, index(n)) &&
         sol::stack::check<T>(state_, index(n), sol::no_panic);
}

template <class T>
T& Arguments::object(int n, const char* what) const {
  if (!is<T>(n)) fail(n, std::string("a ") + what);
  return sol::stack::get<T&>(state_, index(n));
}

template <class T>
T& Arguments::self(const char* what) const {
  if (!is<T>(1)) fail(1, std::string("a ") + what + " (call it with a colon: object:method())");
  return sol::stack::get<T&>(state_, index(1));
}

}  // namespace moonshard::bindings
