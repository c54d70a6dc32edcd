// The C++ end of scripts/moonshard/repl.lua: opens the session and calls its methods.
// Every call into Lua is protected, and no C++ object lives in a frame that a Lua error can skip.
#pragma once

#include <string>
#include <vector>

#include <lua.hpp>

#include "bindings/host/line_editor.h"

namespace moonshard::host {

// Calls into Lua that Ctrl-C can stop. While such a call runs, SIGINT arms a Lua hook that raises
// "interrupted" and sets the runtime's interrupt flag for long native work; at all other times the
// signal has the meaning it had before.

/// Pops the error handler's function info(value, boundary) and pushes call(fn, ...), which returns
/// true and fn's results, or false, what info returned, and whether Ctrl-C had been pressed.
void push_interruptible_call(lua_State* L);

/// Whether Ctrl-C was pressed during the latest call.
bool last_call_was_interrupted() noexcept;

enum class Outcome { Good, Failed, Exit };

class ReplSession {
 public:
  /// `history` is read by the `.history` command and must outlive the session.
  ReplSession(lua_State* L, const std::vector<std::string>* history);
  ~ReplSession();
  ReplSession(const ReplSession&) = delete;
  ReplSession& operator=(const ReplSession&) = delete;

  /// False when the Lua part could not be loaded; `problem` says why.
  bool is_open() const { return ref_ != LUA_NOREF; }
  const std::string& problem() const { return problem_; }

  bool is_complete(const std::string& text);
  Outcome run(const std::string& text);
  Outcome run_file(const std::string& path);
  Completion complete(const std::string& before_cursor);
  std::string banner();
  /// What the method gives for a text: JSON, empty when it failed.
  std::string answer(const char* method, const std::string& text);

 private:
  struct Request;
  static int open_in_lua(lua_State* L);
  static int call_in_lua(lua_State* L);
  bool call(const char* method, const std::string& text, Request* request);

  lua_State* lua_;
  int ref_ = LUA_NOREF;
  std::string problem_;
};

}  // namespace moonshard::host
