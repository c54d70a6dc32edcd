// What experiments write is what the schema describes: no key more, and none that nobody writes.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "runtime/base/json.h"
#include "runtime/experiment/experiment.h"
#include "runtime/records/schema.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::experiment {
namespace {

std::set<std::string> schema_paths() {
  std::set<std::string> paths;
  for (const records::FieldInfo& field : records::result_fields()) paths.insert(field.path);
  return paths;
}

// Objects whose keys are names: their fields are listed below "*", or they have numbers.
bool is_keyed_by_names(const std::string& path, const std::set<std::string>& schema) {
  if (path.ends_with("phases_ms") || path.ends_with(".owners")) return true;
  return schema.contains(path + ".*");
}

void collect(const Json& value, const std::string& path, const std::set<std::string>& schema,
             std::set<std::string>& found) {
  if (path == "options" || path == "data") return;  // described elsewhere
  if (value.is_array()) {
    for (const Json& element : value) collect(element, path + "[]", schema, found);
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      const bool named = is_keyed_by_names(path, schema);
      const std::string inner = (path.empty() ? "" : path + ".") + (named ? "*" : key);
      if (!named) found.insert(inner);
      collect(member, inner, schema, found);
    }
  }
}

ExperimentOptions small(const std::string& mode) {
  ExperimentOptions options;
  options.model = "llama3-tiny";
  options.device = "cpu";
  options.mode = mode;
  options.seq_length = 16;
  options.batch_size = 2;
  options.iters = 1;
  options.profile = "layers";
  return options;
}

// Kinds of experiments that together write everything that one process on a CPU can.
std::vector<ExperimentOptions> kinds(const std::filesystem::path& text_folder) {
  std::vector<ExperimentOptions> list{small("none"), small("ghost")};
  ExperimentOptions modelled = small("flash");
  modelled.parallel = "fsdp";
  modelled.world = "fake:4";
  list.push_back(modelled);
  ExperimentOptions claiming = small("ghost");
  claiming.task = "lm";
  claiming.data_folder = text_folder.string();
  claiming.sampler = "poisson";
  claiming.target_epsilon = 8;
  claiming.delta = 1e-2;
  claiming.accountant = "prv";
  list.push_back(claiming);
  ExperimentOptions risky = claiming;
  risky.target_epsilon = 0;
  risky.delta = 0.9;  // a warning
  risky.accountant = "rdp";
  list.push_back(risky);
  ExperimentOptions history = small("none");
  history.memory_history = true;  // says why there is none on a CPU
  list.push_back(history);
  ExperimentOptions starved = small("none");
  starved.memory_limit_mb = 4;
  starved.seq_length = 512;
  starved.batch_size = 8;
  list.push_back(starved);
  ExperimentOptions summed = small("flash");
  summed.parallel = "fsdp";
  summed.world = "fake:2";
  summed.norm_reduce = "sum";
  summed.watch_steps = 2;
  summed.iters = 8;  // long enough for the load of the machine to be told
  list.push_back(summed);
  return list;
}

// Who writes the fields that need a GPU, several ranks, a sweep's parent process, or a trainer.
const std::map<std::string, std::string>& written_elsewhere() {
  static const std::map<std::string, std::string> places = {
      {"id", "bindings/host/commands.cpp"},
      {"digest", "runtime/records/digest.cpp"},
      {"attempts", "scripts/moonshard/sweep/outcome.lua"},
      {"log_tail", "scripts/moonshard/sweep/outcome.lua"},
      {"memory_history", "runtime/experiment/experiment.cpp"},
      {"metrics.mfu_percent", "runtime/experiment/measurement.cpp"},
      {"metrics.gpu_utilization_percent", "runtime/experiment/measurement.cpp"},
      {"ranks", "runtime/experiment/measurement.cpp"},
      {"load.gpu_percent_before", "runtime/experiment/measurement.cpp"},
      {"load.gpu_processes", "runtime/experiment/measurement.cpp"},
      {"steps[].grad_norm", "runtime/experiment/record_parts.cpp"},
      {"steps[].norm_p10", "runtime/experiment/record_parts.cpp"},
      {"steps[].norm_p50", "runtime/experiment/record_parts.cpp"},
      {"steps[].norm_p90", "runtime/experiment/record_parts.cpp"},
      {"steps[].eval_loss", "scripts/moonshard/fit.lua"},
      {"steps[].perplexity", "scripts/moonshard/fit.lua"},
      {"steps[].accuracy", "scripts/moonshard/fit.lua"},
      {"steps[].macro_f1", "scripts/moonshard/fit.lua"},
  };
  return places;
}

TEST(RecordSchema, IsWhatExperimentsWrite) {
  const TemporaryFolder folder;
  for (int i = 0; i < 40; ++i)
    std::ofstream(folder.path() / ("text" + std::to_string(i) + ".txt"))
        << "A short document with number " << i << " and some more words to fill two samples.";
  const std::set<std::string> schema = schema_paths();
  std::set<std::string> written;
  for (const ExperimentOptions& options : kinds(folder.path()))
    collect(run_experiment(options), "", schema, written);
  for (const std::string& path : written)
    EXPECT_TRUE(schema.contains(path)) << path << " is written, and the schema does not have it";
  for (const std::string& path : schema) {
    if (written.contains(path)) continue;
    const bool is_known = written_elsewhere().contains(path);
    const std::string top = is_known ? path : path.substr(0, path.find("[]"));
    const auto place = written_elsewhere().find(top);
    ASSERT_NE(place, written_elsewhere().end())
        << path << " is in the schema, and nobody writes it";
    std::ifstream file(std::string(MOONSHARD_SOURCE_DIR) + "/" + place->second);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const std::string key = top.substr(top.rfind('.') + 1);
    EXPECT_NE(text.find(key), std::string::npos) << path << ": not in " << place->second;
  }
}

}  // namespace
}  // namespace moonshard::experiment
