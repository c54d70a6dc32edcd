// Reads the arguments of a bound function. Every check throws a C++ exception that names the
// function and the argument; no luaL_check* is used, so that no Lua error jumps over live C++
// objects. A missing or wrong self ("obj.method()" for "obj:method()") is an error like any other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bindings/sol.h"
#include "runtime/base/json.h"

namespace moonshard::bindings {

/// The integer at a stack position, if exact: a whole double up to 2^53, or a LuaJIT int64 or
/// uint64 value up to 2^63 - 1.
std::optional<int64_t> exact_integer(lua_State* L, int index);

class Arguments {
 public:
  /// All that is on the stack of a Lua function at its start.
  Arguments(lua_State* L, const char* function)
      : state_(L), count_(lua_gettop(L)), function_(function) {}

  lua_State* state() const { return state_; }
  int count() const { return count_; }
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

  bool is_integer(int n) const {
    return n <= count() && exact_integer(state_, index(n)).has_value();
  }
  double number(int n, const char* what) const;
  /// Whole numbers that a double holds exactly, and LuaJIT's int64 and uint64 values.
  int64_t integer(int n, const char* what) const;
  std::string text(int n, const char* what) const;
  /// A text without zero bytes, which file names cannot have.
  std::string path(int n, const char* what) const;
  bool boolean(int n, const char* what) const;
  /// A list of whole numbers, given as one table or as all remaining arguments.
  std::vector<int64_t> sizes(int n, const char* what) const;
  /// A table as JSON; absent counts as an empty object.
  Json options(int n) const;
  /// Any value as JSON.
  Json json(int n) const;
  sol::table table(int n, const char* what) const;
  sol::object function(int n, const char* what) const;
  sol::object value(int n) const;

  [[noreturn]] void fail(int n, const std::string& expected) const;
  const char* function_name() const { return function_; }

 private:
  static int index(int n) { return n; }

  lua_State* state_;
  int count_;
  const char* function_;
};

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
