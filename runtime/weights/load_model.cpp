#include "runtime/weights/load_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/comm/world.h"
#include "runtime/models/config_object.h"
#include "runtime/models/model_options.h"
#include "runtime/models/registry.h"
#include "runtime/weights/adapters.h"
#include "runtime/weights/folder_sums.h"
#include "runtime/weights/safetensors.h"
#include "runtime/weights/weight_source.h"

namespace moonshard::weights {
namespace {

using models::Model;
using models::Parameter;

// Names of Hugging Face's heads, which advice after an error is about.
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kClassifier = "score.weight";

// Name in the file of a parameter: its own, without the prefix in files of a bare base model, or
// with that of a larger model. "" when there is none of them.
std::string name_in_file(const WeightSource& source, const std::string& name,
                         const models::WeightNames& names) {
  if (source.find(name) != nullptr) return name;
  const std::string& prefix = names.base_prefix;
  if (prefix.empty() || !name.starts_with(prefix)) return "";
  const std::string bare = name.substr(prefix.size());
  if (source.find(bare) != nullptr) return bare;
  for (const std::string& outer : names.outer_prefixes)
    if (source.find(outer + bare) != nullptr) return outer + bare;
  return "";
}

// The first few of the problems; a wrong file has hundreds of the same kind.
std::string first_few(const std::vector<std::string>& list) {
  constexpr size_t kShown = 3;
  const std::vector<std::string> shown(
      list.begin(), list.begin() + static_cast<ptrdiff_t>(std::min(list.size(), kShown)));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     list.size() > kShown ? fmt::format(" and {} more", list.size() - kShown) : "");
}

struct Plan {
  std::map<std::string, std::string> file_names;  ///< of parameters, by parameter
  LoadReport report;
};

// Pairs parameters and tensors by name; throws when one is missing that must not be.
Plan match_names(const Model& model, const WeightSource& source) {
  Plan plan;
  std::vector<std::string> missing;
  std::set<std::string> used;
  const models::WeightNames names = models::family_of(model.options()).weight_names();
  for (const auto& parameter : model.parameters()) {
    const std::string& name = parameter->name;
    const std::string found = name_in_file(source, name, names);
    if (!found.empty()) {
      plan.file_names[name] = found;
      plan.report.loaded.push_back(name);
      used.insert(found);
    } else if (models::is_adapter_name(name) ||
               std::find(names.optional.begin(), names.optional.end(), name) !=
                   names.optional.end()) {
      plan.report.initialised.push_back(name);
    } else {
      missing.push_back(in_quotes(name));
    }
  }
  if (!missing.empty()) {
    const bool only_head = missing.size() == 1 && missing[0] == in_quotes(kHead);
    throw UsageError(fmt::format(
        "{}: expected all {} parameters of model '{}', got none for {}; {}", source.path().string(),
        model.parameters().size(), model.options().model, first_few(missing),
        only_head && source.find(kClassifier) != nullptr
            ? "the file is a classifier's: build with task = \"classify\""
        : only_head ? "the file ties the head to the embedding: build with tie_embeddings = \"yes\""
                    : "the weights belong to another model: take its config"));
  }
  for (const std::string& name : source.names()) {
    if (!used.contains(name)) plan.report.unused.push_back(name);
  }
  return plan;
}

void check_shapes(const Model& model, const WeightSource& source, const Plan& plan) {
  std::vector<std::string> wrong;
  for (const auto& parameter : model.parameters()) {
    const auto found = plan.file_names.find(parameter->name);
    if (found == plan.file_names.end()) continue;
    const TensorEntry& entry = *source.find(found->second);
    const auto sizes = parameter->value.sizes().vec();
    if (entry.shape != sizes) {
      wrong.push_back(fmt::format("{}: {} instead of {}", in_quotes(parameter->name),
                                  shape_text(entry.shape), shape_text(sizes)));
    } else if (!c10::isFloatingType(entry.dtype)) {
      wrong.push_back(fmt::format("{}: {} instead of floating-point numbers",
                                  in_quotes(parameter->name),
                                  dtype_label(entry.dtype, source.path().string())));
    }
  }
  if (wrong.empty()) return;
  const bool only_classifier = wrong.size() == 1 && wrong[0].rfind(in_quotes(kClassifier), 0) == 0;
  throw UsageError(fmt::format(
      "{}: expected tensors that fit model '{}', got {}; {}", source.path().string(),
      model.options().model, first_few(wrong),
      only_classifier ? "set num_labels to that of the file"
                      : "set the model's sizes to those of the file, or take its config"));
}

// A file may hold a tied weight a second time, under the other layer's name. When its values differ
// from the owner's, the file is not tied, and dropping them would silently change the model.
void check_tied_weights(const Model& model, const WeightSource& source, const Plan& plan) {
  for (const auto& layer : model.layers()) {
    const std::string name = layer->name + ".weight";
    const TensorEntry* second = source.find(name);
    if (second == nullptr || layer->weight->name.starts_with(layer->name)) continue;
    const auto found = plan.file_names.find(layer->weight->name);
    if (found == plan.file_names.end()) continue;
    const TensorEntry& owner = *source.find(found->second);
    const bool same = second->shape == owner.shape && second->dtype == owner.dtype &&
                      at::equal(source.read(name), source.read(found->second));
    MS_CHECK(same,
             "{}: expected {} equal to the embedding, as tie_embeddings = \"yes\" says, got other "
             "numbers; build with tie_embeddings = \"no\"",
             source.path().string(), in_quotes(name));
  }
}

Plan checked_plan(const Model& model, const WeightSource& source) {
  Plan plan = match_names(model, source);
  check_shapes(model, source, plan);
  check_tied_weights(model, source, plan);
  return plan;
}

// A name that is a path: presets have no leading dot or slash, and their "/" (dit-l/8) never names
// a folder with a config.json.
bool names_a_folder(const std::string& model) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(model) / "config.json", ignored);
}

bool looks_like_path(const std::string& model) {
  return model.find('/') != std::string::npos || model.starts_with(".");
}

using models::ConfigObject;
using models::Family;
using models::ModelOptions;

// A config of 21,000 classes names each twice, in less than this.
constexpr ForeignLimits kConfigLimits{8u << 20, 200'000, 32};

// "llama, …, dit or linear"
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

std::map<std::string, std::string> tensors_of_parameters(const Model& model,
                                                         const WeightSource& source) {
  Plan plan = match_names(model, source);
  check_shapes(model, source, plan);
  return std::move(plan.file_names);
}

LoadReport defer_weights(Model& model, const std::filesystem::path& path) {
  auto source = std::make_shared<WeightSource>(open_weights(path));
  Plan plan = checked_plan(model, *source);
  model.take_ranges_from([source, names = std::move(plan.file_names)](
                             const Parameter& parameter, at::Tensor& range, int64_t first) {
    const auto found = names.find(parameter.name);
    if (found == names.end()) return false;
    source->read_range(found->second, first, range);
    return true;
  });
  return std::move(plan.report);
}

LoadReport load_weights(Model& model, const std::filesystem::path& path) {
  const WeightSource source = open_weights(path);
  Plan plan = checked_plan(model, source);
  for (const auto& parameter : model.parameters()) {
    const auto found = plan.file_names.find(parameter->name);
    if (found != plan.file_names.end()) {
      source.read_into(found->second, parameter->value);
    } else {
      model.initialise(*parameter);
    }
  }
  return std::move(plan.report);
}

std::unique_ptr<Model> load_model(models::ModelOptions options, const std::filesystem::path& path,
                                  LoadReport* report) {
  check_weights_exist(path);
  options.weights = path.string();
  auto model = models::make_model(options);
  LoadReport result = load_weights(*model, path);
  if (report != nullptr) *report = std::move(result);
  return model;
}

void check_is_whole(const Model& model, const Parameter& parameter, const char* what) {
  MS_CHECK(!parameter.value.is_meta(),
           "{}: model '{}': expected whole parameters, got '{}', which is spread over ranks; "
           "call trainer:gather() on all ranks first",
           what, model.options().model, parameter.name);
}

std::vector<std::string> save_model(const Model& model, const std::filesystem::path& folder,
                                    int64_t max_shard_bytes) {
  MS_CHECK(model.options().lora_rank == 0,
           "save: model '{}': expected a model without adapters, got one with some; save_adapter() "
           "writes them alone, merged() gives a model that has them in its weights",
           model.options().model);
  NamedTensors tensors;
  for (const auto& parameter : model.parameters()) {
    check_is_whole(model, *parameter, "save");
    tensors.emplace_back(parameter->name, parameter->value);
  }
  auto files = write_sharded(folder, tensors, max_shard_bytes);
  write_config(folder, model.options());
  std::vector<std::string> small = {"config.json"};
  if (files.size() > 1) small.emplace_back(kIndexFileName);
  write_folder_sums(folder, small);
  return files;
}

models::ModelOptions resolve_model(const models::ModelOptions& asked_options) {
  models::ModelOptions options = asked_options;
  read_adapter_options(options);
  if (!names_a_folder(options.model)) {
    // A path, or a name on the hub that no preset knows: what is missing is a folder.
    if (looks_like_path(options.model) && !models::knows_model(options.model)) {
      try {
        check_weights_exist(options.model);
      } catch (const UsageError& error) {
        throw UsageError(
            fmt::format("{}; {}", error.what(), models::hub_suggestion(options.model)));
      }
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

void draw_missing_seed(models::ModelOptions& options) {
  if (options.seed >= 0) return;
  options.seed = comm::job_seed();
  options.seed_is_drawn = true;
}

std::unique_ptr<models::Model> make_model(const models::ModelOptions& options) {
  models::ModelOptions resolved = resolve_model(options);
  draw_missing_seed(resolved);
  auto model = models::make_model(resolved);
  if (resolved.device == "meta") return model;
  if (!resolved.weights.empty())
    resolved.deferred ? defer_weights(*model, resolved.weights)
                      : load_weights(*model, resolved.weights);
  if (!resolved.adapter.empty())
    resolved.deferred ? defer_adapter(*model, resolved.adapter)
                      : load_adapter(*model, resolved.adapter);
  return model;
}

ModelOptions options_from_config(const std::filesystem::path& folder) {
  check_weights_exist(folder);
  const std::filesystem::path path = folder / "config.json";
  std::error_code ignored;
  MS_CHECK(std::filesystem::exists(path, ignored),
           "weights: expected a folder with a config.json, got {}; name the folder of the model, "
           "not one of its files",
           in_quotes(folder.string()));
  check_folder_sum(folder, "config.json");
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
