// Bound C++ types. sol2 owns the memory and knows the type; what scripts see of an object is set
// here: methods first, then the type's own field reader, which names the valid fields when given
// another. The entries are in the metatable itself, so that nothing depends on globals.
#pragma once

#include <string>
#include <vector>

#include "bindings/docs.h"

namespace moonshard::bindings {

/// __index of an object: a method of the table in upvalue 3, else the field reader's result.
template <class F>
int index_object(lua_State* L) {
  lua_settop(L, 2);
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(3));
  if (!lua_isnil(L, -1)) return 1;
  lua_settop(L, 2);
  return call_bound<F>(L);
}

template <class T>
class ObjectType {
 public:
  /// `name` is what errors call it, and must live as long as the program.
  ObjectType(lua_State* L, const char* name) : state_(L), name_(name), methods_(L, sol::create) {
    sol::state_view lua(L);
    const std::string global = std::string("moonshard.") + name;
    lua.new_usertype<T>(global, sol::no_constructor);
    lua[global] = sol::lua_nil;
    metatable_ = lua.registry()[sol::usertype_traits<T>::metatable()];
    // getmetatable() gives the name only: calling __gc by hand would end the process.
    metatable_["__metatable"] = name;
    set("__newindex", make_function(L, name, [](const Arguments& args) {
          args.fail(2, "no assignment (fields of this object are read-only)");
        }));
    metatable_.raw_set("__pairs", sol::lua_nil);
    metatable_.raw_set("new", sol::lua_nil);  // sol2's constructor that only raises
  }

  template <class F>
  void method(const char* name, const char* signature, const char* text, F function) {
    define(methods_, std::string(name_) + ":", name, signature, text, function);
  }
  /// Where the Lua library adds methods that it has written itself, after fields().
  sol::table methods() const { return methods_; }
  /// The same function under a metamethod's name, e.g. "__add".
  void operator_is(const char* metamethod, const char* method) {
    set(metamethod, methods_[method].template get<sol::object>());
  }
  /// Field reads that are not methods, e.g. tensor.shape; `names` are offered by completion.
  template <class F>
  void fields(const std::vector<std::string>& names, F read) {
    new (lua_newuserdata(state_, sizeof(F))) F(read);
    lua_pushlightuserdata(state_, const_cast<char*>(name_));
    methods_.push(state_);
    lua_pushcclosure(state_, &index_object<F>, 3);
    set("__index", sol::stack::pop<sol::object>(state_));
    std::vector<std::string> members = names;
    for (const auto& [name, function] : methods_)
      members.push_back(name.template as<std::string>());
    set("__members", sol::make_object(state_, sol::as_table(members)));
  }
  /// tostring(object).
  template <class F>
  void text(F describe) {
    struct Describe {
      const char* type_name;
      F describe;
      sol::object operator()(const Arguments& args) const {
        return sol::make_object(args.state(), describe(args.self<T>(type_name)));
      }
    };
    set("__tostring", make_function(state_, "tostring", Describe{name_, describe}));
  }

 private:
  void set(const char* key, const sol::object& value) { metatable_.raw_set(key, value); }

  lua_State* state_;
  const char* name_;
  sol::table methods_, metatable_;
};

}  // namespace moonshard::bindings
