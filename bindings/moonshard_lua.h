// What a host program includes to put moonshard into its own Lua state. See examples/embed.
//
// The module does not change the host: package.path and package.cpath stay as they are. The Lua
// library is found by one entry of package.loaders, which handles only moonshard.*, and the only
// globals are sol2's own ("sol.…"). A process may have several states with the module, in several
// threads; they share no models, trainers or measurements.
#pragma once

struct lua_State;

/// Opens the module and leaves its table on the stack, as require "moonshard" does:
///   lua_getglobal(L, "package"); … package.preload.moonshard = luaopen_moonshard
/// The state must have its standard libraries open.
extern "C" int luaopen_moonshard(lua_State* L);

/// Where moonshard is installed: its Lua library lies in PREFIX/share/moonshard. Call it before
/// opening the module. find_package(moonshard) defines MOONSHARD_PREFIX for this.
extern "C" void moonshard_set_prefix(const char* prefix);
