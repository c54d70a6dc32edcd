// Gives the loadable module a source of its own; luaopen_moonshard lies in module.cpp.
#include "bindings/moonshard_lua.h"

// The reference keeps the linker from leaving the entry point out of the library.
extern "C" __attribute__((visibility("default"))) int (*const moonshard_entry)(lua_State*) =
    &luaopen_moonshard;
