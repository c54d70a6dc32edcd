// The program's verbs, once: the dispatcher, --help and completion read this table.
#pragma once

#include <span>
#include <string>

#include "runtime/base/flags.h"

namespace moonshard::host {

struct Verb {
  const char* name;
  const char* summary;  ///< its line in moonshard --help; null for what our own children are given
  int (*run)(const Verb& verb, const Words& words);  ///< returns an exit code; errors are thrown
  /// What moonshard VERB --help prints. Null: the verb answers by itself.
  std::string (*help)(const Verb& verb) = nullptr;
  /// Words behind the first are a script's, --help too.
  bool runs_script = false;
  /// May be started by another launcher as one of several ranks.
  bool may_be_rank = false;
};

std::span<const Verb> verbs();

/// Throws UsageError with the nearest name when there is no such verb.
const Verb& find_verb(const std::string& name);

/// Runs a verb, or prints its help where the words ask for it; returns the exit code.
int run_verb(const Verb& verb, const Words& words);

/// What moonshard --help prints.
std::string program_help();

/// "usage: moonshard VERB …" and a text, the beginning of a verb's help.
std::string usage_text(const Verb& verb, const std::string& usage, const std::string& text);

}  // namespace moonshard::host
