// The program's verbs, in one table for the dispatcher, --help and completion.
#pragma once

#include <span>
#include <string>

#include "runtime/base/flags.h"
#include "runtime/experiment/experiment_options.h"
#include "runtime/records/schema.h"

namespace moonshard::host {

struct Verb {
  const char* name;
  const char* summary;  ///< its line in moonshard --help; null for internal verbs
  int (*run)(const Verb& verb, const Words& words);  ///< returns an exit code; errors are thrown
  /// What moonshard VERB --help prints. Null: the verb prints it itself.
  std::string (*help)(const Verb& verb) = nullptr;
  /// Arguments after the first belong to a script, including --help.
  bool runs_script = false;
  /// May be started by another launcher as one of several ranks.
  bool may_be_rank = false;
};

std::span<const Verb> verbs();

/// Throws UsageError with the nearest name when there is no such verb.
const Verb& find_verb(const std::string& name);

/// Runs a verb, or prints its help if the arguments ask for it; returns the exit code.
int run_verb(const Verb& verb, const Words& words);

/// What moonshard --help prints.
std::string program_help();

/// "usage: moonshard VERB …" and a text, the beginning of a verb's help.
std::string usage_text(const Verb& verb, const std::string& usage, const std::string& text);

// Verbs that need no Lua: experiments, this machine, the viewer.

/// moonshard profile: one experiment by flags, one result on the screen or as JSON, or in a file.
int profile_command(const Verb& verb, const Words& words);
std::string profile_help(const Verb& verb);

/// moonshard point FOLDER ID: one point of a sweep, as its child process.
int point_command(const Verb& verb, const Words& words);

/// moonshard experiment OPTIONS.json RESULT.json: one experiment as a rank of a job that a script
/// started; rank 0 writes the record.
int experiment_command(const Verb& verb, const Words& words);

/// moonshard host-ranks: the launcher's hand on another machine (runtime/launch/host_agent.h).
int host_ranks_command(const Verb& verb, const Words& words);

int doctor_command(const Verb& verb, const Words& words);
std::string doctor_help(const Verb& verb);

/// moonshard view: executes moonshard-view with these arguments; returns only on failure.
int view_command(const Verb& verb, const Words& words);

// moonshard audit: runs the audit, prints the bounds beside the claimed epsilon, and returns an
// exit code that says whether a bound exceeds it.

/// 0 when no bound is above the claim, 4 when one is.
int audit_command(const Verb& verb, const Words& words);
std::string audit_help(const Verb& verb);

// moonshard verify: runs the cells, prints the results, and returns an exit code that says whether
// all hold.

/// 0 when every cell holds, 4 when one does not.
int verify_command(const Verb& verb, const Words& words);
std::string verify_help(const Verb& verb);

// Verbs that run Lua: a user's script, the prompt, and what scripts/moonshard/cli has.

/// moonshard run: a script, here or as several ranks.
int run_command(const Verb& verb, const Words& words);
std::string run_help(const Verb& verb);

int repl_command(const Verb& verb, const Words& words);
std::string repl_help(const Verb& verb);

/// Verbs written in Lua: arguments go to moonshard.cli.NAME, which also has the help.
int lua_command(const Verb& verb, const Words& words);
std::string lua_help(const Verb& verb);

/// moonshard kernel: the Lua verb; `start` becomes a Python process that runs the kernel.
int kernel_command(const Verb& verb, const Words& words);

/// moonshard completion: the Lua verb, given the names of all verbs.
int completion_command(const Verb& verb, const Words& words);

}  // namespace moonshard::host
