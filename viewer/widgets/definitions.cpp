#include "viewer/widgets/definitions.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "runtime/experiment/experiment_options.h"
#include "runtime/profile/owner_names.h"
#include "runtime/records/schema.h"

namespace moonshard::viewer {
namespace {

// What the viewer itself shows beside what records hold.
constexpr std::pair<std::string_view, std::string_view> kOwnFigures[] = {
    {"rest", "Memory at the peak that has no owner."},
    {"noise_source",
     "Where noise comes from: the seed, with which it can be computed and taken away, or a "
     "secret."},
    {"time_ratio", "Time of the step over that of its baseline; above 1 is slower."},
    {"throughput_ratio", "Tokens per second over those of its baseline; above 1 is faster."},
    {"memory_bytes", "Peak memory above that of its baseline."},
    {"memory_percent", "Peak memory above that of its baseline, as a share of it."},
    {"run", "Name of the run folder."},
    // Of simulated runs (moonshard plan --simulate).
    {"machine", "The GPU that was simulated."},
    {"gpus", "GPUs of a simulated node."},
    {"nodes", "Nodes of the simulated cluster."},
    {"nics", "Network adapters of a simulated node, which its GPUs share; 0: one per GPU."},
    {"node_link", "Link of a network adapter between simulated nodes."},
    {"slow_ranks", "Simulated ranks that compute slower, drawn by seed."},
    {"slow_by", "How much longer slow ranks compute, as a share."},
    {"jitter", "Spread of every simulated operation's time."},
};

// "engine auto: …" as "Engine auto: …."; names of engines, wrappers and the like stay as they are
// ("fsdp: …", "llama3 scaling: …").
std::string sentence(std::string text) {
  const std::string first = text.substr(0, text.find(' '));
  const bool is_word =
      std::ranges::all_of(first, [](unsigned char c) { return std::isalpha(c) || c == '\''; });
  if (is_word && !text.empty())
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

// A name may be several things at once: an option and a phase (optimizer), a phase and an owner
// (data).
std::unordered_map<std::string_view, std::string> all_definitions() {
  std::unordered_map<std::string_view, std::string> all;
  const auto add = [&](std::string_view name, const std::string& text) {
    std::string& known = all[name];
    known += (known.empty() ? "" : " ") + text;
  };
  for (const Option& option : experiment::experiment_schema().options())
    add(option.name, sentence(option.doc));
  for (const auto& [name, doc] : profile::kPhases) add(name, fmt::format("Phase: {}.", doc));
  for (const auto& [name, doc] : profile::kOwnerNames)
    add(name, fmt::format("Owner of memory: {}.", doc));
  for (const auto& [name, text] : kOwnFigures) add(name, std::string(text));
  // An option's own text says more than that of the place where its value is recorded.
  for (const records::FieldInfo& field : records::result_fields())
    if (!all.contains(field.key)) add(field.key, field.doc);
  return all;
}

}  // namespace

std::string_view definition_of(std::string_view key) {
  static const std::unordered_map<std::string_view, std::string> all = all_definitions();
  const auto found = all.find(key);
  return found == all.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace moonshard::viewer
