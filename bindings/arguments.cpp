#include "bindings/arguments.h"

#include <cmath>

#include "bindings/convert.h"
#include "runtime/base/check.h"

namespace moonshard::bindings {
namespace {

constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53
constexpr int kCdata = 10;                                   // LuaJIT's type number of FFI values

}  // namespace

std::optional<int64_t> exact_integer(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TNUMBER) {
    const double number = lua_tonumber(L, index);
    if (number != std::floor(number) || std::abs(number) > kLargestExactInteger)
      return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (lua_type(L, index) != kCdata) return std::nullopt;
  // The C API cannot look into FFI values; their text can: "-5LL", "7ULL".
  lua_getglobal(L, "tostring");
  lua_pushvalue(L, index);
  std::optional<int64_t> result;
  if (lua_pcall(L, 1, 1, 0) == 0 && lua_type(L, -1) == LUA_TSTRING) {
    const std::string text = lua_tostring(L, -1);
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    const std::string suffix = end;
    if (end != text.c_str() && errno == 0 && (suffix == "LL" || suffix == "ULL")) result = value;
  }
  lua_pop(L, 1);
  return result;
}

std::string describe_value(lua_State* L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TNONE:
      return "nothing";
    case LUA_TNIL:
      return "nil";
    case LUA_TBOOLEAN:
      return lua_toboolean(L, index) != 0 ? "true" : "false";
    case LUA_TNUMBER:
      return fmt::format("{}", lua_tonumber(L, index));
    case LUA_TSTRING: {
      size_t length = 0;
      const char* data = lua_tolstring(L, index, &length);
      return fmt::format("'{}{}'", std::string(data, std::min<size_t>(length, 40)),
                         length > 40 ? "..." : "");
    }
    case kCdata:
      return "an FFI value";
    default:
      return fmt::format("a {}", lua_typename(L, lua_type(L, index)));
  }
}

void Arguments::fail(int n, const std::string& expected) const {
  const std::string got = n > count() ? "nothing" : describe_value(state_, index(n));
  throw UsageError(
      fmt::format("{}: argument {}: expected {}, got {}", function_, n, expected, got));
}

double Arguments::number(int n, const char* what) const {
  if (n <= count() && lua_type(state_, index(n)) == LUA_TNUMBER)
    return lua_tonumber(state_, index(n));
  if (n <= count()) {
    if (const auto whole = exact_integer(state_, index(n))) return static_cast<double>(*whole);
  }
  fail(n, std::string("a number (") + what + ")");
}

int64_t Arguments::integer(int n, const char* what) const {
  if (n <= count()) {
    if (const auto whole = exact_integer(state_, index(n))) return *whole;
  }
  fail(n, std::string("a whole number (") + what + ")");
}

std::string Arguments::text(int n, const char* what) const {
  if (n > count() || lua_type(state_, index(n)) != LUA_TSTRING)
    fail(n, std::string("a text (") + what + ")");
  size_t length = 0;
  const char* data = lua_tolstring(state_, index(n), &length);
  return {data, length};
}

std::string Arguments::path(int n, const char* what) const {
  const std::string value = text(n, what);
  if (value.empty() || value.find('\0') != std::string::npos) {
    fail(n, std::string("a path without zero bytes (") + what + ")");
  }
  return value;
}

bool Arguments::boolean(int n, const char* what) const {
  if (n > count() || lua_type(state_, index(n)) != LUA_TBOOLEAN)
    fail(n, std::string("true or false (") + what + ")");
  return lua_toboolean(state_, index(n)) != 0;
}

std::vector<int64_t> Arguments::sizes(int n, const char* what) const {
  std::vector<int64_t> result;
  if (n <= count() && lua_type(state_, index(n)) == LUA_TTABLE) {
    const size_t length = lua_objlen(state_, index(n));
    for (size_t i = 1; i <= length; ++i) {
      lua_rawgeti(state_, index(n), static_cast<int>(i));
      const auto whole = exact_integer(state_, -1);
      lua_pop(state_, 1);
      if (!whole) fail(n, std::string("a list of whole numbers (") + what + ")");
      result.push_back(*whole);
    }
    return result;
  }
  for (int i = n; i <= count(); ++i) result.push_back(integer(i, what));
  return result;
}

Json Arguments::options(int n) const {
  if (missing(n)) return Json::object();
  if (lua_type(state_, index(n)) != LUA_TTABLE) fail(n, "a table of options");
  return to_json(state_, index(n), function_);
}

Json Arguments::json(int n) const {
  return n > count() ? Json(nullptr) : to_json(state_, index(n), function_);
}

sol::table Arguments::table(int n, const char* what) const {
  if (n > count() || lua_type(state_, index(n)) != LUA_TTABLE)
    fail(n, std::string("a table (") + what + ")");
  return sol::table(state_, index(n));
}

sol::object Arguments::function(int n, const char* what) const {
  if (n > count() || lua_type(state_, index(n)) != LUA_TFUNCTION)
    fail(n, std::string("a function (") + what + ")");
  return sol::object(state_, index(n));
}

sol::object Arguments::value(int n) const {
  if (n > count()) return sol::make_object(state_, sol::lua_nil);
  return sol::object(state_, index(n));
}

}  // namespace moonshard::bindings
