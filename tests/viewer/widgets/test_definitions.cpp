// Every name that a real record has means something to the reader of a tooltip.
#include "viewer/widgets/definitions.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "runtime/base/json.h"
#include "runtime/experiment/experiment_options.h"
#include "runtime/profile/owner_names.h"

namespace moonshard::viewer {
namespace {

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  if (object.is_object())
    for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

void expect_defined(const std::set<std::string>& keys, const std::string& where) {
  for (const std::string& key : keys)
    EXPECT_FALSE(definition_of(key).empty()) << where << ": " << key;
}

TEST(Definitions, CoverEveryNameOfTheStoredResults) {
  size_t results = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(MOONSHARD_SOURCE_DIR "/examples/results")) {
    if (entry.path().filename() != "result.json") continue;
    const Json record = read_json_file(entry.path());
    ++results;
    expect_defined(keys_of(record.value("options", Json())), "options");
    if (record["status"] != "ok") continue;
    expect_defined(keys_of(record["metrics"]), "metrics");
    expect_defined(keys_of(record["time"]["phases_ms"]), "phases");
    expect_defined(keys_of(record["time"]["step_ms"]), "statistics");
    expect_defined(keys_of(record.value("norms_ms", Json())), "parts of norms");
    expect_defined(keys_of(record["privacy"]), "privacy");
    expect_defined(keys_of(record["steps"][0]), "steps");
    // Condensed records are without these.
    for (const Json& row : record.value("memory_stages", Json::array()))
      expect_defined(keys_of(row), "stages");
    const Json timeline = record["memory"].value("timeline", Json::object());
    expect_defined(keys_of(timeline.value("owners", Json())), "owners");
    for (const Json& row : record["memory"]["breakdown"])
      expect_defined({row["owner"].get<std::string>()}, "owners");
    for (const Json& row : record.value("comm", Json::array()))
      expect_defined(keys_of(row), "communication");
  }
  EXPECT_GE(results, 30u);
}

// Names that those results happen not to have: other engines, layers, ranks, later claims.
TEST(Definitions, CoverWhatOtherRecordsHave) {
  expect_defined({"rest", "local", "stacking", "final"}, "part of memory or norms");
  expect_defined({"epsilon", "delta", "sampling_rate", "sampler", "accountant", "norms_histogram",
                  "max_grad_norm", "noise_multiplier", "steps"},
                 "privacy");
  expect_defined({"run", "id", "status", "error", "time_ratio", "throughput_ratio", "memory_bytes",
                  "memory_percent"},
                 "column");
  expect_defined({"layer", "kind", "norm_ms", "rank", "bytes_asked", "bytes_free"}, "row");
}

// Whoever adds an option, a phase or an owner describes it where it is declared.
TEST(Definitions, AreTheProgramsOwnForEveryOptionPhaseAndOwner) {
  const auto expect_says = [](const std::string& name, std::string doc) {
    ASSERT_FALSE(doc.empty()) << name;
    const std::string_view shown = definition_of(name);
    EXPECT_NE(shown.find(doc.substr(1) + "."), std::string_view::npos) << name << ": " << shown;
    EXPECT_TRUE(shown.ends_with('.') && shown.size() > 10) << name;
  };
  EXPECT_GT(experiment::experiment_schema().options().size(), 90u);
  for (const Option& option : experiment::experiment_schema().options())
    expect_says(option.name, option.doc);
  for (const auto& [name, doc] : profile::kPhases) expect_says(name, doc);
  for (const auto& [name, doc] : profile::kOwnerNames) expect_says(name, doc);
  EXPECT_NE(definition_of("memory_budget_mb").find("0: half of what a GPU has beside the weights"),
            std::string_view::npos);
  EXPECT_NE(definition_of("data").find("Owner of memory: "), std::string_view::npos);
}

TEST(Definitions, AreSentencesAndUnknownNamesHaveNone) {
  for (const char* key : {"peak_memory_bytes", "mode", "second_backward"}) {
    const std::string_view text = definition_of(key);
    EXPECT_EQ(text.back(), '.') << key;
    EXPECT_EQ(text.find('\n'), std::string_view::npos);
  }
  EXPECT_TRUE(definition_of("no_such_name").empty());
  EXPECT_TRUE(definition_of("").empty());
}

}  // namespace
}  // namespace moonshard::viewer
