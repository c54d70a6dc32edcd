// The one source of the loadable module; luaopen_moonshard is defined in module.cpp.
#include "bindings/moonshard_lua.h"

// The reference keeps the linker from leaving the entry point out of the library.
extern "C" __attribute__((visibility("default"))) int (*const moonshard_entry)(lua_State*) =
    &luaopen_moonshard;
