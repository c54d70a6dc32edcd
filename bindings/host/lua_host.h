// The program's Lua state: standard libraries, source text only, moonshard preloaded, Ctrl-C that
// stops.
#pragma once

#include <string>
#include <vector>

#include <lua.hpp>

namespace moonshard::host {

class LuaHost {
 public:
  LuaHost();
  ~LuaHost();
  LuaHost(const LuaHost&) = delete;
  LuaHost& operator=(const LuaHost&) = delete;

  lua_State* state() const { return state_; }

  /// Runs a file with its arguments (global `arg` and `...`). An error is printed with its
  /// traceback. Returns the exit code: 0, 1, 3 (out of memory), 5 (a sweep had failed points), 130
  /// (interrupted).
  int run_file(const std::string& path, const std::vector<std::string>& arguments);
  /// Calls FUNCTION of the Lua module moonshard.cli with words as arguments; same exit codes. A
  /// returned number is the exit code. Mistakes of usage give 2.
  int call_command(const char* function, const std::vector<std::string>& words);

 private:
  int run(int argument_count, bool is_command);
  lua_State* state_;
};

}  // namespace moonshard::host
