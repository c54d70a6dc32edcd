#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <lua.hpp>

#include "bindings/bindings.h"
#include "bindings/host/ranks_command.h"
#include "bindings/host/repl.h"
#include "bindings/host/verbs.h"
#include "bindings/lua_error.h"
#include "bindings/moonshard_lua.h"
#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/json.h"
#include "runtime/launch/process.h"

namespace moonshard::host {
namespace {

lua_State* interrupted_state = nullptr;

void stop_script(lua_State* L, lua_Debug*) {
  lua_sethook(L, nullptr, 0, 0);
  luaL_error(L, "interrupted");
}

// First Ctrl-C: stop at the next safe point. Second: the default action at once, as a loop that
// LuaJIT compiled runs no hooks.
void on_interrupt(int) {
  ::signal(SIGINT, SIG_DFL);
  request_interrupt();
  if (interrupted_state != nullptr) {
    lua_sethook(interrupted_state, &stop_script, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
  }
}

// Message handler: keeps error tables as they are, adds a traceback to texts.
int add_traceback(lua_State* L) {
  if (lua_type(L, 1) != LUA_TSTRING) return 1;
  luaL_traceback(L, L, lua_tostring(L, 1), 1);
  return 1;
}

// An error object may have a text of its own.
int own_text(lua_State* L) {
  if (luaL_callmeta(L, 1, "__tostring") == 0) lua_settop(L, 1);
  return 1;
}

std::string text_of(lua_State* L, int index) {
  const std::string type = luaL_typename(L, index);
  lua_pushvalue(L, index);
  lua_pushcfunction(L, &own_text);
  lua_insert(L, -2);
  const bool fails = lua_pcall(L, 1, 1, 0) != 0;  // __tostring is the script's and may raise
  const char* text = fails ? nullptr : lua_tostring(L, -1);
  const std::string result = text != nullptr ? text : "an error object of type " + type;
  lua_pop(L, 1);
  return fails ? result + ", whose __tostring raises an error itself" : result;
}

bool has_note(lua_State* L, const char* key) {
  lua_getfield(L, LUA_REGISTRYINDEX, key);
  const bool is_there = lua_toboolean(L, -1) != 0;
  lua_pop(L, 1);
  return is_there;
}

// A sweep with failed points, or one whose files could not be written, leaves a note in its state's
// registry (launch.note_failed_points, launch.note_unwritten).
int requested_exit_code(lua_State* L) {
  if (has_note(L, bindings::kUnwrittenNote)) return 1;
  return has_note(L, bindings::kFailedPointsNote) ? 5 : 0;
}

// Takes `--resume DIR` out of a script's words: run folders for its sweeps to go on with. A script
// that looks at its words may mean something else by it: then DIR decides.
Words take_resumed_folders(const std::string& source, Words& words) {
  const bool reads_words =
      source.find("...") != std::string::npos || source.find("arg") != std::string::npos;
  Words folders, rest;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_joined = words[i].starts_with("--resume=");
    std::string folder;
    if (is_joined) folder = words[i].substr(words[i].find('=') + 1);
    if (words[i] == "--resume" && i + 1 < words.size()) folder = words[i + 1];
    std::error_code ignored;
    const bool is_run =
        std::filesystem::exists(std::filesystem::path(folder) / "sweep.json", ignored);
    if (folder.empty() || (reads_words && !is_run)) {
      rest.push_back(words[i]);
      continue;
    }
    folders.push_back(folder);
    if (!is_joined) ++i;
  }
  words = std::move(rest);
  return folders;
}

// The program's Lua state: standard libraries, no byte code, moonshard preloaded, interruptible by
// Ctrl-C.
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
  int run_file(const std::string& path, Words arguments);
  /// Runs the verb NAME of the Lua module moonshard.cli; same exit codes, and the one that it
  /// returns. Wrong arguments give 2.
  int call_command(const char* name, const Words& words);
  /// The help of that verb. Throws Error when Lua fails.
  std::string help_of_command(const char* name);

 private:
  void push_command(const char* function, const char* verb);
  int run(int argument_count, bool is_command);
  lua_State* state_;
};

LuaHost::LuaHost() : state_(luaL_newstate()) {
  MS_CHECK(state_ != nullptr, "lua: no memory for a Lua state");
  luaL_openlibs(state_);
  bindings::allow_source_text_only(state_);
  bindings::add_library_searcher(state_);
  lua_getglobal(state_, "package");
  lua_getfield(state_, -1, "preload");
  lua_pushcfunction(state_, &luaopen_moonshard);
  lua_setfield(state_, -2, "moonshard");
  lua_pop(state_, 2);
}

LuaHost::~LuaHost() {
  interrupted_state = nullptr;
  lua_close(state_);
}

int LuaHost::run_file(const std::string& path, Words arguments) {
  const std::string source = read_text_file(path, 64u << 20);
  bindings::refuse_byte_code(source, path);
  const Words resumed = take_resumed_folders(source, arguments);
  // A first line "#!…" is the shell's; the line break stays, so that line numbers are right.
  const size_t start = source.rfind("#", 0) == 0 ? std::min(source.find('\n'), source.size()) : 0;
  if (luaL_loadbuffer(state_, source.data() + start, source.size() - start, ("@" + path).c_str()) !=
      0) {
    std::fprintf(stderr, "moonshard: %s\n", text_of(state_, -1).c_str());
    return 1;
  }
  lua_newtable(state_);
  lua_pushstring(state_, path.c_str());
  lua_rawseti(state_, -2, 0);
  lua_pushstring(state_, launch::program_path().c_str());
  lua_rawseti(state_, -2, -1);  // Lua's own convention: the interpreter
  // What `moonshard run` was asked of the script's sweeps: moonshard.sweep reads it.
  lua_newtable(state_);
  for (size_t i = 0; i < resumed.size(); ++i) {
    lua_pushlstring(state_, resumed[i].data(), resumed[i].size());
    lua_rawseti(state_, -2, static_cast<int>(i) + 1);
  }
  lua_setfield(state_, -2, "resume");
  int index = 0;
  for (const std::string& argument : arguments) {
    lua_pushlstring(state_, argument.data(), argument.size());
    lua_rawseti(state_, -2, ++index);
  }
  lua_setglobal(state_, "arg");
  for (const std::string& argument : arguments)
    lua_pushlstring(state_, argument.data(), argument.size());
  return run(index, false);
}

int LuaHost::call_command(const char* name, const Words& words) {
  push_command("run", name);
  for (const std::string& word : words) lua_pushlstring(state_, word.data(), word.size());
  return run(static_cast<int>(words.size()) + 1, true);
}

std::string LuaHost::help_of_command(const char* name) {
  push_command("help", name);
  if (lua_pcall(state_, 1, 1, 0) != 0) throw Error(text_of(state_, -1));
  return text_of(state_, -1);
}

// moonshard.cli's function of that name, and the verb as its first argument.
void LuaHost::push_command(const char* function, const char* verb) {
  if (luaL_loadstring(
          state_, "local name = ... require 'moonshard' return require('moonshard.cli')[name]") !=
      0)
    throw Error(text_of(state_, -1));
  lua_pushstring(state_, function);
  if (lua_pcall(state_, 1, 1, 0) != 0) throw Error(text_of(state_, -1));
  lua_pushstring(state_, verb);
}

int LuaHost::run(int argument_count, bool is_command) {
  const int function = lua_gettop(state_) - argument_count;
  lua_pushcfunction(state_, &add_traceback);
  lua_insert(state_, function);
  interrupted_state = state_;
  ::signal(SIGINT, &on_interrupt);
  const int status = lua_pcall(state_, argument_count, 1, function);
  ::signal(SIGINT, SIG_DFL);
  interrupted_state = nullptr;
  if (status != 0) {
    std::fflush(stdout);
    if (interrupt_requested()) {
      std::fprintf(stderr, "moonshard: interrupted\n");
      end_rank("interrupted");
      return 130;
    }
    std::string message = text_of(state_, -1);
    // Our own commands, and what was refused before its start: a traceback would not help the user.
    using bindings::MemoryOutcome;
    const MemoryOutcome memory = bindings::memory_outcome(message);
    if (is_command || was_stopped() || memory == MemoryOutcome::CannotFit)
      message = message.substr(0, message.find("\nstack traceback:"));
    std::fprintf(stderr, "moonshard: %s\n", message.c_str());
    // Before the state is closed: closing may wait in a collective that the other ranks never join.
    end_rank(message.substr(0, message.find("\nstack traceback:")));
    if (was_stopped()) return kExitToContinue;
    return memory == MemoryOutcome::Other ? 1 : 3;
  }
  if (is_command && lua_isnumber(state_, -1)) return static_cast<int>(lua_tointeger(state_, -1));
  return requested_exit_code(state_);
}

}  // namespace

std::string run_help(const Verb& verb) {
  return usage_text(
      verb,
      "[--nproc N] [--hosts A:2,B:2] [--log-dir DIR] [--max-restarts N [--min-nproc M]] SCRIPT.lua "
      "[arguments]",
      "Runs a Lua script; its arguments are in `arg` and `...`. With --nproc, N ranks of one job "
      "run it\n(ms.dist says which is which): rank 0 here, the others into DIR/log.rank<r>.txt.\n"
      "--hosts: ranks on several machines, which ssh reaches and which share a file system; hosts\n"
      "without a number have --nproc ranks. --remote-shell \"WORDS\" or MOONSHARD_REMOTE_SHELL: "
      "instead "
      "of ssh.\n"
      "--max-restarts: after a rank or the job was lost it starts again, to go on from its newest\n"
      "checkpoint (trainer:durable); with --min-nproc with fewer ranks, if one cannot be had.\n"
      "--resume DIR behind the script: its sweep goes on in that run folder.");
}

int run_command(const Verb& verb, const Words& words) {
  if (words.empty()) {
    fmt::print("{}", run_help(verb));
    return 2;
  }
  Words script = words;
  const RanksOptions ranks = take_ranks_options(script);
  MS_CHECK(!script.empty(), "command line: expected a script, got the end of the line");
  if (must_start_ranks(ranks)) return start_ranks(ranks, verb, script);
  LuaHost lua;
  return lua.run_file(script[0], Words(script.begin() + 1, script.end()));
}

std::string repl_help(const Verb& verb) {
  return usage_text(
      verb, "[--json]",
      "A prompt with the module as `ms`; reads a pipe, too. .help lists its commands. --json is "
      "for programs:\nrequests and answers as one JSON object per line (docs/notebook.md).");
}

int repl_command(const Verb&, const Words& words) {
  const bool json = words.size() == 1 && words[0] == "--json";
  MS_CHECK(words.empty() || json, "command line: expected --json or no more words, got '{}'",
           words.back());
  LuaHost lua;
  ReplOptions options = default_repl_options((launch::shared_files() / "scripts").string());
  options.json = json;
  if (json) options.interactive = false;
  return run_repl(lua.state(), options);
}

int lua_command(const Verb& verb, const Words& words) {
  LuaHost lua;
  return lua.call_command(verb.name, words);
}

std::string lua_help(const Verb& verb) {
  LuaHost lua;
  return lua.help_of_command(verb.name);
}

int completion_command(const Verb& verb, const Words& words) {
  std::string names;
  for (const Verb& each : verbs())
    if (each.summary != nullptr) names += (names.empty() ? "" : ",") + std::string(each.name);
  Words with_verbs = words;
  with_verbs.push_back("--verbs=" + names);
  return lua_command(verb, with_verbs);
}

}  // namespace moonshard::host
