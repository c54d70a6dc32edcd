#include "runtime/core/tuning.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "runtime/base/files.h"
#include "runtime/base/json.h"

namespace moonshard {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMostEntries = 2000;

std::mutex& tuning_mutex() {
  static std::mutex mutex;
  return mutex;
}

// This process's choices, merged with those of the file.
std::map<std::string, TunedChoice>& known() {
  static std::map<std::string, TunedChoice> choices;
  return choices;
}

// The file is untrusted input: another user's, an older version's, or damaged. Unexpected entries
// are skipped.
std::map<std::string, TunedChoice> read_file() {
  std::map<std::string, TunedChoice> choices;
  const fs::path path = tuning_file();
  std::error_code ignored;
  if (path.empty() || !fs::is_regular_file(path, ignored)) return choices;
  try {
    JsonLimits limits;
    limits.max_bytes = kMostBytes;
    const Json file = read_json_file(path, limits);
    if (!file.is_object() || !file.contains("choices") || !file["choices"].is_object()) return {};
    for (const auto& [key, entry] : file["choices"].items()) {
      TunedChoice choice;
      choice.choice = string_or(entry, "choice", "");
      if (choice.choice.empty() || !entry.contains("ms") || !entry["ms"].is_object()) continue;
      for (const auto& [name, ms] : entry["ms"].items())
        if (ms.is_number()) choice.ms[name] = ms.get<double>();
      choices[key] = std::move(choice);
    }
  } catch (const std::exception&) {
    return {};
  }
  return choices;
}

void write_file(const std::map<std::string, TunedChoice>& choices) {
  const fs::path path = tuning_file();
  if (path.empty() || choices.size() > kMostEntries) return;
  Json entries = Json::object();
  for (const auto& [key, choice] : choices) {
    Json times = Json::object();
    for (const auto& [name, ms] : choice.ms) times[name] = ms;
    entries[key] = {{"choice", choice.choice}, {"ms", std::move(times)}};
  }
  try {
    fs::create_directories(path.parent_path());
    write_file_atomically(path, to_text({{"choices", std::move(entries)}}));
  } catch (const std::exception&) {  // a read-only home: timed again next time
  }
}

}  // namespace

fs::path tuning_file() {
  const char* named = std::getenv("MOONSHARD_TUNING");
  if (named != nullptr && *named != '\0')
    return std::string(named) == "off" ? fs::path() : fs::path(named);
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return fs::path(cache) / "moonshard" / "tuning.json";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".cache" / "moonshard" / "tuning.json";
}

TunedChoice tuned(const std::string& where, const std::string& key,
                  const std::function<TunedChoice()>& time) {
  const std::string full_key = where + " | " + key;
  const std::lock_guard lock(tuning_mutex());
  auto& choices = known();
  if (const auto found = choices.find(full_key); found != choices.end()) return found->second;
  for (auto& [known_key, choice] : read_file()) choices.emplace(known_key, choice);
  if (const auto found = choices.find(full_key); found != choices.end()) return found->second;
  const TunedChoice timed = time();
  if (timed.choice.empty()) return timed;
  choices[full_key] = timed;
  auto all = read_file();
  all[full_key] = timed;
  write_file(all);
  return timed;
}

std::string tuned_choice(const std::string& where, const std::string& key,
                         const std::function<std::map<std::string, double>()>& time) {
  return tuned(where, key,
               [&] {
                 TunedChoice timed;
                 timed.ms = time();
                 const auto fastest = std::min_element(
                     timed.ms.begin(), timed.ms.end(),
                     [](const auto& a, const auto& b) { return a.second < b.second; });
                 if (fastest != timed.ms.end()) timed.choice = fastest->first;
                 return timed;
               })
      .choice;
}

std::map<std::string, TunedChoice> tuned_choices() {
  const std::lock_guard lock(tuning_mutex());
  auto all = read_file();
  for (const auto& [key, choice] : known()) all[key] = choice;
  return all;
}

}  // namespace moonshard
