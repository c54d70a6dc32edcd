// luaopen_moonshard: the native parts, then the Lua library from share/moonshard/scripts on top.
// The same code serves the program, a host that embeds moonshard, and require "moonshard" from a
// plain luajit.
#include <unistd.h>

#include <cstring>

#include "bindings/bindings.h"
#include "bindings/docs.h"
#include "bindings/lua_error.h"
#include "bindings/moonshard_lua.h"
#include "runtime/base/check.h"
#include "runtime/base/prefix.h"
#include "runtime/comm/world.h"
#include "runtime/launch/process.h"
#include "runtime/profile/memory.h"

namespace moonshard::bindings {
namespace {

constexpr const char* kModuleName = "moonshard.module";
constexpr const char* kSearcherName = "moonshard.searcher";

// package.loaded: in the registry, where a host that hides its globals has it, too.
sol::table loaded_modules(lua_State* L) {
  return sol::state_view(L).registry()["_LOADED"];
}

// An entry of package.loaders: finds moonshard.NAME in the folder that is its upvalue, and nothing
// else. package.path is the host's, and stays as it is. No C++ object lives here: luaL_error jumps.
int find_in_library(lua_State* L) {
  const char* name = luaL_checkstring(L, 1);
  constexpr const char* kPrefix = "moonshard.";
  if (std::strncmp(name, kPrefix, std::strlen(kPrefix)) != 0) return 0;
  const char* path = lua_pushfstring(L, "%s/%s.lua", lua_tostring(L, lua_upvalueindex(1)),
                                     luaL_gsub(L, name, ".", "/"));
  if (::access(path, R_OK) != 0) {
    lua_pushfstring(L, "\n\tno file '%s'", path);
    return 1;
  }
  if (luaL_loadfilex(L, path, "t") != 0)
    return luaL_error(L, "error loading module '%s' from file '%s':\n\t%s", name, path,
                      lua_tostring(L, -1));
  return 1;
}

// sol2 keeps its types in globals named "sol.…". A script that clears its globals (test runners do)
// would free them under live objects; a second holder in the registry keeps them.
void anchor_type_storage(lua_State* L) {
  sol::state_view lua(L);
  sol::table held(L, sol::create);
  for (const auto& [key, value] : lua.globals()) {
    if (key.get_type() == sol::type::string && key.as<std::string>().rfind("sol.", 0) == 0) {
      held[key] = value;
    }
  }
  lua.registry()["moonshard.types"] = held;
}

// Takes the metatable off the globals while sol2 registers its types: a host may forbid new
// globals.
class PlainGlobals {
 public:
  explicit PlainGlobals(lua_State* L) : state_(L) {
    lua_pushvalue(L, LUA_GLOBALSINDEX);
    if (lua_getmetatable(L, -1) == 0) lua_pushnil(L);
    reference_ = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pushnil(L);
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
  }
  ~PlainGlobals() {
    lua_pushvalue(state_, LUA_GLOBALSINDEX);
    lua_rawgeti(state_, LUA_REGISTRYINDEX, reference_);
    lua_setmetatable(state_, -2);
    lua_pop(state_, 1);
    luaL_unref(state_, LUA_REGISTRYINDEX, reference_);
  }
  PlainGlobals(const PlainGlobals&) = delete;
  PlainGlobals& operator=(const PlainGlobals&) = delete;

 private:
  lua_State* state_;
  int reference_;
};

sol::table bind_all(lua_State* L, sol::table native) {
  sol::table ms(L, sol::create);
  bind_docs(ms, native);
  document(
      ms, "ms", "local ms = require \"moonshard\"",
      "moonshard: experiments on private and sharded training. help(ms.NAME) explains a function.");
  bind_tensor(ms);
  bind_model(ms, native);
  bind_generate(native);
  bind_weights(ms);
  bind_privacy(ms);
  bind_audit(ms);
  bind_budget(ms);
  bind_train(ms, native);
  bind_loader(ms);
  bind_tokenizer(ms);
  bind_data(ms);
  bind_dist(ms);
  bind_experiment(ms, native);
  bind_plan(native);
  bind_tracing(native);
  bind_records(native);
  bind_analysis(native);
  bind_export(native);
  bind_launch(ms, native);
  return ms;
}

void load_lua_library(lua_State* L, sol::table ms, sol::table native) {
  const std::filesystem::path scripts = launch::shared_files() / "scripts";
  MS_CHECK(std::filesystem::exists(scripts / "moonshard" / "init.lua"),
           "require \"moonshard\": expected the Lua library in {}, got nothing; install moonshard "
           "whole, or set MOONSHARD_PREFIX",
           scripts.string());
  add_library_searcher(L);
  sol::state_view lua(L);
  const sol::protected_function require = lua["require"];
  const auto library = require("moonshard.init");
  if (!library.valid()) throw Error(library.get<sol::error>().what());
  const auto filled = library.get<sol::protected_function>()(ms, native);
  if (!filled.valid()) throw Error(filled.get<sol::error>().what());
}

sol::table make_module(lua_State* L) {
  const PlainGlobals plain(L);
  sol::state_view lua(L);
  sol::table loaded = loaded_modules(L);
  // A state has one moonshard: objects of an earlier require stay valid after a later one.
  const sol::object existing = lua.registry()[kModuleName];
  if (existing.is<sol::table>()) {
    const sol::table ms = existing.as<sol::table>()["ms"];
    loaded["moonshard"] = ms;
    loaded["moonshard.native"] = existing.as<sol::table>()["native"];
    return ms;
  }
  profile::install_cpu_memory_hook();
  comm::take_own_gpu();
  install_error_handler(L);
  sol::table native(L, sol::create);
  sol::table ms = bind_all(L, native);
  anchor_type_storage(L);
  // Both stand in package.loaded before the Lua part runs, which requires them in turn.
  loaded["moonshard"] = ms;
  loaded["moonshard.native"] = native;
  load_lua_library(L, ms, native);
  lua.registry()[kModuleName] = lua.create_table_with("ms", ms, "native", native);
  return ms;
}

}  // namespace

void add_library_searcher(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, kSearcherName);
  const bool is_there = lua_toboolean(L, -1) != 0;
  lua_pop(L, 1);
  if (is_there) return;
  const sol::table package = loaded_modules(L)["package"];
  sol::table loaders = package["loaders"];
  // Right behind package.preload: our library is the one that this module was installed with,
  // whatever else lies in a folder named moonshard.
  constexpr int kPlace = 2;
  for (size_t i = loaders.size(); i >= kPlace; --i) loaders[i + 1] = loaders.get<sol::object>(i);
  lua_pushstring(L, (launch::shared_files() / "scripts").string().c_str());
  lua_pushcclosure(L, &find_in_library, 1);
  loaders[kPlace] = sol::stack::pop<sol::object>(L);
  lua_pushboolean(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, kSearcherName);
}

int open_module(lua_State* L) {
  // Everything that may throw is inside; the Lua error is raised outside of all C++ objects.
  bool failed = false;
  try {
    make_module(L).push();
  } catch (const std::exception& error) {
    failed = true;
    lua_pushstring(L, readable_message(error).c_str());
  }
  return failed ? lua_error(L) : 1;
}

}  // namespace moonshard::bindings

extern "C" void moonshard_set_prefix(const char* prefix) {
  moonshard::set_install_prefix(prefix);
}

extern "C" int luaopen_moonshard(lua_State* L) {
  return moonshard::bindings::open_module(L);
}
