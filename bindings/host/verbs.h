// The program's verbs, in one table for the dispatcher, --help and completion.
#pragma once

#include <span>
#include <string>

#include "runtime/base/flags.h"

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

}  // namespace moonshard::host
