// The interactive prompt of the moonshard program: terminal, history and signals in C++, everything
// about Lua in scripts/moonshard/repl.lua.
#pragma once

#include <string>

#include <lua.hpp>

namespace moonshard::host {

struct ReplOptions {
  std::string scripts_dir;   ///< of the Lua library; named in messages
  std::string history_file;  ///< empty: history lives in memory only
  std::string startup_file;  ///< Lua file run before the first prompt; empty or missing: none
  bool interactive = false;  ///< stdin is a terminal
  bool json = false;         ///< requests and answers as JSON, see repl_server.h
};

/// Options from the surroundings: a terminal on stdin or not, MOONSHARD_HISTORY and
/// MOONSHARD_STARTUP (empty turns either off), else `history` and `startup.lua` in the user's state
/// and configuration folders (XDG). Without a terminal there is neither history nor start-up file.
ReplOptions default_repl_options(const std::string& scripts_dir);

/// Runs the prompt until the user leaves or the input ends. `L` has the standard libraries and can
/// `require "moonshard"`. Returns the exit code: 0, or 1 when input from a pipe had an error, 130
/// when such input was interrupted.
int run_repl(lua_State* L, const ReplOptions& options);

}  // namespace moonshard::host
