// Verbs that run Lua: a user's script, the prompt, and what scripts/moonshard/cli has.
#pragma once

#include "bindings/host/verbs.h"

namespace moonshard::host {

/// moonshard run: a script, here or as several ranks.
int run_command(const Verb& verb, const Words& words);
std::string run_help(const Verb& verb);

int repl_command(const Verb& verb, const Words& words);
std::string repl_help(const Verb& verb);

/// Verbs written in Lua: arguments go to moonshard.cli.NAME, which also has the help.
int lua_command(const Verb& verb, const Words& words);
std::string lua_help(const Verb& verb);

/// moonshard completion: the Lua verb, given the names of all verbs.
int completion_command(const Verb& verb, const Words& words);

}  // namespace moonshard::host
