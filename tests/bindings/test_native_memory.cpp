// A script's garbage is collected before its memory runs out: the handles are small, what they hold
// is not.
#include <gtest/gtest.h>

#include <lua.hpp>
#include <string>

#include <c10/core/Device.h>

#include "bindings/moonshard_lua.h"
#include "runtime/profile/memory.h"

namespace {

using namespace moonshard;

// Text of the error, or "".
std::string error_of(lua_State* L, const std::string& chunk) {
  if (luaL_loadstring(L, chunk.c_str()) == 0 && lua_pcall(L, 0, 0, 0) == 0) return "";
  return lua_tostring(L, -1);
}

TEST(NativeMemory, GarbageMakesRoomBeforeMemoryRunsOut) {
  moonshard_set_prefix(MOONSHARD_BUILD_DIR);
  lua_State* L = luaL_newstate();
  luaL_openlibs(L);
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, &luaopen_moonshard);
  lua_setfield(L, -2, "moonshard");
  EXPECT_EQ(error_of(L, "ms = require 'moonshard' ms.model('linear-tiny', { device = 'cpu' })"),
            "");
  lua_gc(L, LUA_GCCOLLECT, 0);
  // Less than the growth after which a call collects by itself.
  const auto held = [] { return profile::read_memory(c10::Device(c10::kCPU)).allocated_bytes; };
  profile::set_cpu_memory_limit(held() + (16 << 20));
  EXPECT_EQ(error_of(L, "for _ = 1, 100 do ms.zeros({ 1024, 1024 }) end"), "");
  EXPECT_NE(error_of(L, "kept = {} for i = 1, 100 do kept[i] = ms.zeros({ 1024, 1024 }) end")
                .find("memory: tried to allocate"),
            std::string::npos);
  // A finalizer that raises is not the error of whoever asked for memory.
  EXPECT_EQ(error_of(L, R"lua(kept = nil collectgarbage()
    getmetatable(newproxy(true)).__gc = function() error('finalizer') end
    for _ = 1, 100 do ms.zeros({ 1024, 1024 }) end)lua"),
            "");
  profile::set_cpu_memory_limit(0);
  lua_close(L);
}

}  // namespace
