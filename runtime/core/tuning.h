// Choices that were timed once on this machine and are remembered: which of two kernels is faster
// for a shape. They live in one small file per user, so that later runs start with them; `moonshard
// doctor` shows them. A file that cannot be read or written costs the memory, never the run.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace moonshard {

struct TunedChoice {
  std::string choice;
  std::map<std::string, double> ms;  ///< what each candidate took
};

/// MOONSHARD_TUNING names the file; else tuning.json in $XDG_CACHE_HOME/moonshard or
/// ~/.cache/moonshard. Empty when there is no such place, or MOONSHARD_TUNING is "off".
std::filesystem::path tuning_file();

/// The remembered choice for `key` ("attention: …") on the machine `where` (a GPU's name and the
/// library's version); else `time` measures the candidates, and the fastest is remembered. Safe
/// from several threads and processes: the last writer's file stands, each is whole.
std::string tuned_choice(const std::string& where, const std::string& key,
                         const std::function<std::map<std::string, double>()>& time);

/// Everything that is remembered, for reading: key (with its machine) to choice.
std::map<std::string, TunedChoice> tuned_choices();

}  // namespace moonshard
