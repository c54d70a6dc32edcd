#include "bindings/native_memory.h"

#include <algorithm>
#include <cstdint>

#include "runtime/profile/memory.h"

namespace moonshard::bindings {
namespace {

// Garbage is at most as much as what is in use, within these.
constexpr int64_t kLeastGrowth = 32 << 20, kMostGrowth = 1 << 30;
// Of all states of the process: a second state's tensors cost this one a collection, no more.
thread_local int64_t collect_above = kLeastGrowth;

int collect(lua_State* L) {
  lua_gc(L, LUA_GCCOLLECT, 0);
  return 0;
}

// A finalizer of the script's may raise: its error must not pass through the frames of whoever
// asked for memory.
void collect_quietly(void* state) {
  auto* L = static_cast<lua_State*>(state);
  if (lua_checkstack(L, 8) == 0) return;
  if (lua_cpcall(L, &collect, nullptr) != 0) lua_pop(L, 1);
}

}  // namespace

CollectableCall::CollectableCall(lua_State* L) : scope_(&collect_quietly, L) {}

void collect_if_grown(lua_State* L) {
  if (profile::held_bytes() <= collect_above) return;
  collect_quietly(L);
  const int64_t held = profile::held_bytes();
  collect_above = held + std::clamp(held, kLeastGrowth, kMostGrowth);
}

}  // namespace moonshard::bindings
