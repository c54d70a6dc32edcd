// A host program with a Lua state of its own: opens moonshard in it, adds a function, runs a
// script. Build: see CMakeLists.txt beside this file.
#include <cstdio>

#include <lua.hpp>

#include "bindings/moonshard_lua.h"

namespace {

// The host's own function: scripts call report(name, value).
int report(lua_State* L) {
  std::printf("host: %s = %.3f\n", luaL_checkstring(L, 1), luaL_checknumber(L, 2));
  return 0;
}

constexpr const char* kScript = R"lua(
  local ms = require "moonshard"
  local result = ms.run { model = "linear-tiny", mode = "materialize", iters = 2 }
  report("final loss", result.metrics.final_loss)
  report("peak MiB", result.metrics.peak_memory_mb)
)lua";

}  // namespace

int main() {
  moonshard_set_prefix(MOONSHARD_PREFIX);
  lua_State* L = luaL_newstate();
  luaL_openlibs(L);
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, &luaopen_moonshard);
  lua_setfield(L, -2, "moonshard");
  lua_pop(L, 2);
  lua_register(L, "report", &report);

  const int status = luaL_dostring(L, kScript);
  if (status != 0) std::fprintf(stderr, "host: %s\n", lua_tostring(L, -1));
  lua_close(L);
  return status;
}
