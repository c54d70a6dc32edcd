#include "bindings/host/lua_commands.h"

#include <cstdio>

#include "bindings/host/lua_host.h"
#include "bindings/host/ranks_command.h"
#include "bindings/host/repl.h"
#include "runtime/base/check.h"
#include "runtime/launch/process.h"

namespace moonshard::host {

std::string run_help(const Verb& verb) {
  return usage_text(
      verb, "[--nproc N] [--log-dir DIR] SCRIPT.lua [arguments]",
      "Runs a Lua script; its arguments are in `arg` and `...`. With --nproc, N ranks of one job "
      "run it\n(ms.dist says which is which): rank 0 here, the others into DIR/log.rank<r>.txt.");
}

int run_command(const Verb& verb, const Words& words) {
  if (words.empty()) {
    fmt::print("{}", run_help(verb));
    return 2;
  }
  Words script = words;
  const RanksOptions ranks = take_ranks_options(script);
  MS_CHECK(!script.empty(), "command line: expected a script, got the end of the line");
  if (must_start_ranks(ranks.nproc)) return start_ranks(ranks, verb, script);
  LuaHost lua;
  return lua.run_file(script[0], Words(script.begin() + 1, script.end()));
}

std::string repl_help(const Verb& verb) {
  return usage_text(
      verb, "", "A prompt with the module as `ms`; reads a pipe, too. .help lists its commands.");
}

int repl_command(const Verb&, const Words& words) {
  MS_CHECK(words.empty(), "command line: expected no more words, got '{}'", words[0]);
  LuaHost lua;
  return run_repl(lua.state(), default_repl_options((launch::shared_files() / "scripts").string()));
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
