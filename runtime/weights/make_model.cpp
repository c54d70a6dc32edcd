#include "runtime/weights/make_model.h"

#include <filesystem>

#include "runtime/models/model_schema.h"
#include "runtime/models/registry.h"
#include "runtime/weights/hf_config.h"
#include "runtime/weights/load_model.h"
#include "runtime/weights/weight_source.h"

namespace moonshard::weights {
namespace {

// A name that is a path: presets have no leading dot or slash, and their "/" (dit-l/8) never names
// a folder with a config.json.
bool names_a_folder(const std::string& model) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(model) / "config.json", ignored);
}

bool looks_like_path(const std::string& model) {
  return model.find('/') != std::string::npos || model.starts_with(".");
}

}  // namespace

models::ModelOptions resolve_model(const models::ModelOptions& options) {
  if (!names_a_folder(options.model)) {
    // A path, or a name on the hub that no preset knows: what is missing is a folder.
    if (looks_like_path(options.model) && !models::knows_model(options.model)) {
      check_weights_exist(options.model);
      throw UsageError(fmt::format(
          "model: expected a preset or a folder with a config.json, got '{}', which has none; give "
          "the preset as model and this path as weights",
          options.model));
    }
    return models::resolve_model_options(options);
  }
  models::ModelOptions combined = options_from_config(options.model);
  const models::ModelOptions untouched;
  for (const Option& option : models::model_schema().options()) {
    const Json asked = option.read(&options);
    if (option.name != "model" && asked != option.read(&untouched)) option.write(&combined, asked);
  }
  combined.deferred = options.deferred;
  if (combined.weights.empty()) combined.weights = options.model;
  return models::resolve_model_options(combined);
}

std::unique_ptr<models::Model> make_model(const models::ModelOptions& options) {
  const models::ModelOptions resolved = resolve_model(options);
  auto model = models::make_model(resolved);
  if (!resolved.weights.empty() && resolved.device != "meta")
    resolved.deferred ? defer_weights(*model, resolved.weights)
                      : load_weights(*model, resolved.weights);
  return model;
}

}  // namespace moonshard::weights
