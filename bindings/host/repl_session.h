// The C++ end of scripts/moonshard/repl.lua: opens the session and calls its methods.
// Every call into Lua is protected, and no C++ object lives in a frame that a Lua error can skip.
#pragma once

#include <lua.hpp>
#include <string>
#include <vector>

#include "bindings/host/line_editor.h"

namespace moonshard::host {

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
