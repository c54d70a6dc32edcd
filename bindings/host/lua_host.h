// The program's Lua state: standard libraries, no byte code, moonshard preloaded, interruptible by
// Ctrl-C.
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
  /// Runs the verb NAME of the Lua module moonshard.cli; same exit codes, and the one that it
  /// returns. Wrong arguments give 2.
  int call_command(const char* name, const std::vector<std::string>& words);
  /// The help of that verb. Throws Error when Lua fails.
  std::string help_of_command(const char* name);

 private:
  void push_command(const char* function, const char* verb);
  int run(int argument_count, bool is_command);
  lua_State* state_;
};

}  // namespace moonshard::host
