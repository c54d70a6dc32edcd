#include "runtime/weights/adapters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/globs.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/models/config_object.h"
#include "runtime/models/registry.h"
#include "runtime/weights/folder_sums.h"
#include "runtime/weights/weight_source.h"

namespace moonshard::weights {
namespace {

namespace fs = std::filesystem;
using models::ConfigObject;
using models::Model;
using models::ModelOptions;
using models::Parameter;
using models::ParamLayer;

constexpr const char *kAdapterConfig = "adapter_config.json",
                     *kAdapterFile = "adapter_model.safetensors";
// PEFT's wrapper around the wrapper around the model.
constexpr const char* kPeftPrefix = "base_model.model.";
constexpr ForeignLimits kAdapterLimits{8u << 20, 200'000, 32};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

ConfigObject read_adapter_config(const fs::path& folder) {
  const fs::path path = folder / kAdapterConfig;
  MS_CHECK(is_file(path), "adapter: expected a folder with an {}, got {}", kAdapterConfig,
           in_quotes(folder.string()));
  check_folder_sum(folder, kAdapterConfig);
  return {read_foreign_json(path, kAdapterLimits), path.string()};
}

// Variants of LoRA that compute something else.
void refuse_variants(const ConfigObject& config) {
  if (config.text_or("peft_type", "LORA") != "LORA")
    config.fail("peft_type", "LORA, the one kind of adapter that is supported,");
  for (const char* key : {"use_dora", "use_qalora", "fan_in_fan_out", "lora_bias"})
    if (config.boolean_or(key, false)) config.fail(key, "false");
  for (const char* key : {"use_bdlora", "layer_replication", "target_parameters",
                          "trainable_token_indices", "alora_invocation_tokens"})
    if (config.has(key) && !config.get(key).empty()) config.fail(key, "none");
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    if (config.has(key) && !config.get(key).empty())
      config.fail(key, "none (one rank and alpha for all layers)");
}

// A tensor's name without what PEFT puts before it. A bare base model's has no "model." either.
std::string own_name(const std::string& in_file, const std::string& base_prefix) {
  std::string name = in_file;
  if (name.starts_with(kPeftPrefix)) name = name.substr(std::string(kPeftPrefix).size());
  const bool is_bare =
      !base_prefix.empty() && !name.starts_with(base_prefix) && name.starts_with("layers.");
  return is_bare ? base_prefix + name : name;
}

std::string base_prefix_of(const ModelOptions& options) {
  return models::family_of(options).weight_names().base_prefix;
}

// "….q_proj" of "….q_proj.lora_A.weight".
std::string layer_of_adapter(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind(models::kAdapterDown));
}

template <class T>
void take(const char* name, T& option, const T& unset, const T& told, const std::string& where) {
  MS_CHECK(option == unset || option == told,
           "{}: expected option '{}' as the adapter has it, {}, got {}; leave it out", where, name,
           told, option);
  option = told;
}

std::string task_of(const ConfigObject& config) {
  const std::string type = config.text_or("task_type", "");
  return type == "CAUSAL_LM" ? "lm" : type == "SEQ_CLS" ? "classify" : "auto";
}

// Tensors of the file by the model's names; throws where a tensor has no place or no fitting one.
std::map<std::string, std::string> matched_tensors(const Model& model, const WeightSource& source) {
  std::map<std::string, std::string> in_file;
  const std::string prefix = base_prefix_of(model.options());
  for (const std::string& name : source.names()) {
    const Parameter& parameter = model.parameter(own_name(name, prefix));
    const TensorEntry& entry = *source.find(name);
    MS_CHECK(entry.shape == parameter.value.sizes().vec(),
             "{}: expected {} of shape {}, got {}; the adapter belongs to another model",
             source.path().string(), in_quotes(name), shape_text(parameter.value.sizes().vec()),
             shape_text(entry.shape));
    in_file[parameter.name] = name;
  }
  for (const auto& parameter : model.parameters()) {
    MS_CHECK(!models::is_adapter_name(parameter->name) || in_file.contains(parameter->name),
             "{}: expected the adapters of all layers that {} names, got none for {}",
             source.path().string(), kAdapterConfig, in_quotes(parameter->name));
  }
  return in_file;
}

LoadReport report_of(const std::map<std::string, std::string>& in_file) {
  LoadReport report;
  for (const auto& [name, ignored] : in_file) report.loaded.push_back(name);
  return report;
}

// Last parts of names where they mean these layers alone, as people write them; else whole names.
std::vector<std::string> target_modules(const Model& model) {
  std::set<std::string> last_parts, names;
  const auto last_part = [](const ParamLayer& layer) {
    return layer.name.substr(layer.name.rfind('.') + 1);
  };
  for (const auto& layer : model.layers()) {
    if (layer->lora_up == nullptr) continue;
    last_parts.insert(last_part(*layer));
    names.insert(layer->name);
  }
  for (const auto& layer : model.layers()) {
    if (layer->lora_up == nullptr && last_parts.contains(last_part(*layer)))
      return {names.begin(), names.end()};
  }
  return {last_parts.begin(), last_parts.end()};
}

// Layers, adapters apart, of which a parameter is trained: PEFT saves such a layer as a whole.
std::vector<const ParamLayer*> trained_layers(const Model& model) {
  std::vector<const ParamLayer*> found;
  for (const auto& layer : model.layers()) {
    if (layer->trainable() && !models::is_adapter_name(layer->weight->name))
      found.push_back(layer.get());
  }
  return found;
}

}  // namespace

bool is_adapter_folder(const fs::path& folder) {
  return is_file(folder / kAdapterConfig) && !is_file(folder / "config.json");
}

void read_adapter_options(ModelOptions& options) {
  if (options.adapter.empty() && is_adapter_folder(options.model)) {
    const ConfigObject config = read_adapter_config(options.model);
    config.require("base_model_name_or_path", "the name or folder of the model that it belongs to");
    options.adapter = options.model;
    options.model = config.text_or("base_model_name_or_path", "");
  }
  if (options.adapter.empty()) return;
  const fs::path folder = options.adapter;
  const ConfigObject config = read_adapter_config(folder);
  refuse_variants(config);
  const std::string where = (folder / kAdapterConfig).string();
  const int64_t rank = config.integer("r", 1, 100'000);
  double alpha = config.number("lora_alpha", 1e-9, 1e9);
  if (config.boolean_or("use_rslora", false)) alpha *= std::sqrt(static_cast<double>(rank));
  take<int64_t>("lora_rank", options.lora_rank, 0, rank, where);
  take<double>("lora_alpha", options.lora_alpha, 0, alpha, where);
  // Not a part of the model: whoever trains on may choose another.
  if (options.lora_dropout < 0 && config.has("lora_dropout"))
    options.lora_dropout = config.number("lora_dropout", 0, 0.999);

  // What has an adapter is read from the tensors: the config may have a regular expression.
  const WeightSource source = open_weights(folder / kAdapterFile);
  std::vector<std::string> layers, others;
  for (const std::string& in_file : source.names()) {
    const std::string name = own_name(in_file, "model.");
    if (!models::is_adapter_name(name)) {
      others.push_back(name);
    } else if (name.ends_with(std::string(models::kAdapterDown) + ".weight")) {
      layers.push_back(layer_of_adapter(name));
    }
    if (name == "score.weight" && source.find(in_file)->shape.size() == 2 &&
        options.num_labels == 0)
      options.num_labels = source.find(in_file)->shape[0];
  }
  MS_CHECK(!layers.empty(), "{}: expected tensors of adapters, got none", source.path().string());
  const auto joined = [](const auto& list) { return fmt::format("{}", fmt::join(list, ",")); };
  take<std::string>("lora_targets", options.lora_targets, "", joined(layers), where);
  if (options.trained.empty()) options.trained = joined(others);
  if (options.task == "auto") options.task = task_of(config);
}

LoadReport load_adapter(Model& model, const fs::path& folder) {
  const WeightSource source = open_weights(folder / kAdapterFile);
  const auto in_file = matched_tensors(model, source);
  for (const auto& [name, tensor] : in_file) source.read_into(tensor, model.parameter(name).value);
  return report_of(in_file);
}

LoadReport defer_adapter(Model& model, const fs::path& folder) {
  const auto source = std::make_shared<WeightSource>(open_weights(folder / kAdapterFile));
  auto in_file = matched_tensors(model, *source);
  LoadReport report = report_of(in_file);
  model.take_ranges_from([source, names = std::move(in_file)](const Parameter& parameter,
                                                              at::Tensor& range, int64_t first) {
    const auto found = names.find(parameter.name);
    if (found == names.end()) return false;
    source->read_range(found->second, first, range);
    return true;
  });
  return report;
}

void save_adapter(const Model& model, const fs::path& folder) {
  const ModelOptions& o = model.options();
  MS_CHECK(o.lora_rank > 0,
           "save_adapter: model '{}': expected a model with adapters (lora_rank), got one without; "
           "save() writes all its weights",
           o.model);
  NamedTensors tensors;
  std::set<std::string> modules;
  const auto add = [&](const Parameter* parameter) {
    if (parameter == nullptr) return;
    check_is_whole(model, *parameter, "save_adapter");
    tensors.emplace_back(kPeftPrefix + parameter->name, parameter->value);
  };
  for (const auto& parameter : model.parameters())
    if (models::is_adapter_name(parameter->name)) add(parameter.get());
  for (const ParamLayer* layer : trained_layers(model)) {
    modules.insert(layer->name);
    add(layer->weight);
    add(layer->bias);
  }
  const Json config = {
      {"peft_type", "LORA"},
      {"task_type", o.task == "lm"         ? Json("CAUSAL_LM")
                    : o.task == "classify" ? Json("SEQ_CLS")
                                           : Json()},
      {"base_model_name_or_path", o.weights.empty() ? models::hub_name(o.model) : o.weights},
      {"r", o.lora_rank},
      {"lora_alpha", o.lora_alpha},
      {"lora_dropout", o.lora_dropout},
      {"target_modules", target_modules(model)},
      {"modules_to_save", modules.empty() ? Json() : Json(modules)},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"use_rslora", false},
      {"use_dora", false},
      {"layers_to_transform", nullptr},
      {"layers_pattern", nullptr},
      {"rank_pattern", Json::object()},
      {"alpha_pattern", Json::object()}};
  create_folders(folder, Access::Shared);
  write_safetensors(folder / kAdapterFile, tensors, kPortableMetadata);
  write_file_atomically(folder / kAdapterConfig, to_text(config));
  write_folder_sums(folder, {kAdapterConfig});
}

std::unique_ptr<Model> merged_model(const Model& model) {
  const at::NoGradGuard no_grad;
  ModelOptions options = model.options();
  options.lora_rank = 0;
  options.lora_alpha = options.lora_dropout = 0;
  options.lora_targets = options.adapter = options.trained = options.weights = "";
  options.deferred = false;
  auto whole = models::make_model(options);
  for (const auto& parameter : whole->parameters()) {
    const Parameter& own = model.parameter(parameter->name);
    check_is_whole(model, own, "merged");
    parameter->value.copy_(own.value);
  }
  for (const auto& layer : model.layers()) {
    if (layer->lora_up == nullptr) continue;
    at::Tensor& target = whole->parameter(layer->weight->name).value;
    const auto wide = target.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor change = at::matmul(layer->lora_up->weight->value.to(wide),
                                         layer->lora_down->weight->value.to(wide));
    target.copy_(target.to(wide) + change * layer->lora_scale);
  }
  return whole;
}

}  // namespace moonshard::weights
