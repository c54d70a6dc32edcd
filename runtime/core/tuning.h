// Choices that were timed once on this machine and are cached: which of two kernels is faster for a
// shape. They live in one small file per user, so that later runs reuse them; `moonshard doctor`
// shows them. If the file cannot be read or written, choices are timed again.
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

/// What is cached for `key` ("attention: …") on the machine `where` (a GPU's name and the library's
/// version); else `time` measures, and its result is cached. Safe from several threads and
/// processes: files are replaced atomically, the last writer wins.
TunedChoice tuned(const std::string& where, const std::string& key,
                  const std::function<TunedChoice()>& time);
/// The same for candidates of which the fastest is chosen.
std::string tuned_choice(const std::string& where, const std::string& key,
                         const std::function<std::map<std::string, double>()>& time);

/// All cached choices, for display: key (with its machine) to choice.
std::map<std::string, TunedChoice> tuned_choices();

}  // namespace moonshard
