#include "runtime/weights/hf_config.h"

#include <system_error>

#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/staged_file.h"
#include "runtime/models/config_object.h"
#include "runtime/models/registry.h"
#include "runtime/weights/foreign_json.h"
#include "runtime/weights/labels.h"
#include "runtime/weights/weight_source.h"

namespace moonshard::weights {
namespace {

using models::ConfigObject;
using models::Family;
using models::ModelOptions;

// A config of 21,000 classes names each twice, in less than this.
constexpr ForeignLimits kConfigLimits{8u << 20, 200'000, 32};

// "llama, qwen2, dit or linear"
std::string known_types() {
  std::vector<std::string> types;
  for (const auto& family : models::families())
    for (const std::string& type : family->config_types()) types.push_back(type);
  const std::string last = types.back();
  types.pop_back();
  return fmt::format("{} or {}", fmt::join(types, ", "), last);
}

const Family& family_of_config(const ConfigObject& config) {
  config.require("model_type", known_types());
  const std::string type = config.text_or("model_type", "");
  for (const auto& family : models::families()) {
    for (const std::string& known : family->config_types())
      if (known == type) return *family;
  }
  config.fail("model_type", known_types());
}

// 16-bit and 32-bit weights are opened as float32, which holds them all; double ones would lose
// digits there.
void read_dtype(const ConfigObject& config, ModelOptions& o) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (config.has(key) && config.get(key).is_string() && config.get(key) == "float64")
      o.dtype = "float64";
  }
}

}  // namespace

ModelOptions options_from_config(const std::filesystem::path& folder) {
  check_weights_exist(folder);
  const std::filesystem::path path = folder / "config.json";
  std::error_code ignored;
  MS_CHECK(std::filesystem::exists(path, ignored),
           "weights: expected a folder with a config.json, got {}; name the folder of the model, "
           "not one of its files",
           in_quotes(folder.string()));
  const ConfigObject config(read_foreign_json(path, kConfigLimits), path.string());
  ModelOptions options = family_of_config(config).read_config(config);
  read_dtype(config, options);
  return options;
}

void write_config(const std::filesystem::path& folder, const ModelOptions& options) {
  const ModelOptions o = models::resolve_model_options(options);
  Json config = models::family_of(o).write_config(o);
  config["torch_dtype"] = o.dtype;
  write_file_atomically(folder / "config.json", to_text(config));
}

}  // namespace moonshard::weights
