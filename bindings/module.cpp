// luaopen_moonshard: the native parts, then the Lua library from share/moonshard/scripts on top.
// The same code serves the program, a host that embeds moonshard, and require "moonshard" from a
// plain luajit.
#include "bindings/bindings.h"
#include "bindings/docs.h"
#include "bindings/lua_error.h"
#include "bindings/moonshard_lua.h"
#include "runtime/launch/process.h"
#include "runtime/profile/memory.h"

namespace moonshard::bindings {
namespace {

sol::table make_module(lua_State* L) {
  profile::install_cpu_memory_hook();
  install_error_handler(L);
  sol::state_view lua(L);
  sol::table ms(L, sol::create), native(L, sol::create);
  bind_docs(ms);
  document(
      ms, "ms", "local ms = require \"moonshard\"",
      "moonshard: experiments on private and sharded training. help(ms.NAME) explains a function.");
  bind_tensor(ms);
  bind_model(ms);
  bind_train(ms);
  bind_experiment(ms, native);
  bind_records(native);
  bind_launch(ms, native);

  const std::filesystem::path scripts = launch::shared_files() / "scripts";
  MS_CHECK(std::filesystem::exists(scripts / "moonshard" / "init.lua"),
           "require \"moonshard\": expected the Lua library in {}, got nothing; install moonshard "
           "whole, or set MOONSHARD_PREFIX",
           scripts.string());
  add_scripts_to_path(L);
  // The module stands in package.loaded before its Lua part runs, which requires it in turn.
  lua["package"]["loaded"]["moonshard"] = ms;
  const sol::protected_function require = lua["require"];
  const auto library = require("moonshard.init");
  if (!library.valid()) throw Error(library.get<sol::error>().what());
  const auto filled = library.get<sol::protected_function>()(ms, native);
  if (!filled.valid()) throw Error(filled.get<sol::error>().what());
  return ms;
}

}  // namespace

void add_scripts_to_path(lua_State* L) {
  sol::table package = sol::state_view(L)["package"];
  const std::string pattern = (launch::shared_files() / "scripts").string() + "/?.lua";
  const std::string path = package["path"].get<std::string>();
  if (path.find(pattern) == std::string::npos) package["path"] = pattern + ";" + path;
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
  moonshard::launch::set_prefix(prefix);
}

extern "C" int luaopen_moonshard(lua_State* L) {
  return moonshard::bindings::open_module(L);
}
