// Models for Lua: ms.model, ms.models, and batches as tables of tensors.
#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/handles.h"
#include "bindings/tensor_handle.h"
#include "bindings/usertype.h"
#include "runtime/base/check.h"
#include "runtime/models/model_cost.h"
#include "runtime/models/model_options.h"
#include "runtime/models/registry.h"
#include "runtime/plan/trainer_check.h"
#include "runtime/weights/adapters.h"
#include "runtime/weights/load_model.h"
#include "runtime/weights/safetensors.h"
#include "runtime/weights/weight_source.h"

namespace moonshard::bindings {
namespace {

// lora = { rank = 8, alpha = 16, targets = { "q_proj" }, dropout = 0.05 } as the options that it
// stands for.
Json with_lora_options(const Arguments& args, int n) {
  Json options = args.options(n);
  const auto found = options.find("lora");
  if (found == options.end()) return options;
  const Json lora = *found;
  MS_CHECK(lora.is_object() && lora.contains("rank"),
           "{}: option 'lora': expected {{ rank = …, alpha = …, targets = {{ … }}, dropout = … }}, "
           "got {}",
           args.function_name(), one_line(lora).substr(0, 100));
  options.erase("lora");
  for (const auto& [key, value] : lora.items()) {
    const std::string name = key;
    MS_CHECK(name == "rank" || name == "alpha" || name == "targets" || name == "dropout",
             "{}: option 'lora': expected rank, alpha, targets or dropout, got '{}'",
             args.function_name(), name);
    const bool is_list = value.is_array();
    options["lora_" + name] =
        is_list ? Json(fmt::format("{}", fmt::join(value.get<std::vector<std::string>>(), ",")))
                : value;
  }
  return options;
}

sol::object make_model(const Arguments& args) {
  models::ModelOptions options;
  options.model = args.text(1, "model name");
  models::model_schema().assign_all(&options, with_lora_options(args, 2));
  plan::refuse_model_that_cannot_fit(weights::resolve_model(options));
  return sol::make_object(args.state(), ModelHandle{weights::make_model(options)});
}

sol::object list_models(const Arguments& args) {
  Json list = Json::array();
  for (const models::Preset& preset : models::presets()) {
    const models::ModelCost cost = models::model_cost(preset.sizes, 1, preset.seq_length);
    list.push_back({{"name", preset.sizes.model},
                    {"task", preset.sizes.task},
                    {"num_parameters", cost.num_parameters},
                    {"parameter_bytes", cost.parameter_bytes},
                    {"flops_per_token", cost.flops_per_token},
                    {"memory_batch_1_bytes", cost.peak_bytes},
                    {"batch_size", preset.batch_size},
                    {"seq_length", preset.seq_length},
                    {"doc", preset.doc}});
  }
  return to_lua(args.state(), list);
}

sol::object read_model_field(const Arguments& args) {
  lua_State* L = args.state();
  const models::Model& model = *args.self<ModelHandle>("Model").model;
  const std::string name = args.text(2, "field");
  if (name == "name") return sol::make_object(L, model.options().model);
  if (name == "num_parameters") return to_lua(L, model.num_parameters());
  if (name == "bytes") return to_lua(L, model.parameter_bytes());
  if (name == "options") return to_lua(L, models::model_schema().to_json(&model.options()));
  if (name == "parameters" || name == "trainable") {
    Json names = Json::array();
    for (const auto& parameter : model.parameters())
      if (parameter->trainable || name == "parameters") names.push_back(parameter->name);
    return to_lua(L, names);
  }
  if (name == "layers") {
    Json list = Json::array();
    for (const auto& layer : model.layers()) {
      list.push_back({{"name", layer->name},
                      {"kind", layer->kind},
                      {"weight", layer->weight->name},
                      {"bias", layer->bias == nullptr ? Json() : Json(layer->bias->name)},
                      {"trainable", layer->trainable()}});
    }
    return to_lua(L, list);
  }
  throw UsageError(fmt::format(
      "Model: expected a field (name, num_parameters, bytes, options, parameters, trainable, "
      "layers) or a method (parameter, losses, forward, generate, freeze, save, save_adapter, "
      "merged), got "
      "'{}'",
      name));
}

template <class F>
auto on_batch(F compute) {
  return [compute](const Arguments& args) {
    const at::NoGradGuard no_grad;
    models::Model& model = *args.self<ModelHandle>("Model").model;
    return push_tensor(args.state(), compute(model, read_batch(args, 2, model)));
  };
}

// Weights for Lua, in ms.weights: files and folders of safetensors, configs, models from them.

struct WeightsHandle {
  std::shared_ptr<weights::WeightSource> source;  ///< null after close()

  const weights::WeightSource& get(const char* function) const {
    MS_CHECK(source != nullptr, "{}: expected open weights, got closed ones; open them again",
             function);
    return *source;
  }
};

const OptionSchema& load_schema() {
  static const OptionSchema schema("ms.weights.load",
                                   models::add_model_options<models::ModelOptions>);
  return schema;
}

sol::object open_file(const Arguments& args) {
  return sol::make_object(args.state(), WeightsHandle{std::make_shared<weights::WeightSource>(
                                            weights::open_weights(args.path(1, "path")))});
}

// Sorted by name: a Lua table has no order, and equal tables make equal files.
weights::NamedTensors read_tensors(const Arguments& args, int n) {
  std::map<std::string, at::Tensor> tensors;
  const sol::table table = args.table(n, "of names and Tensors");
  for (const auto& [key, value] : table) {
    MS_CHECK(key.get_type() == sol::type::string,
             "{}: argument {}: expected names as keys, got {}; write {{ name = tensor }}",
             args.function_name(), n, sol::type_name(args.state(), key.get_type()));
    const auto name = key.as<std::string>();
    MS_CHECK(value.is<TensorHandle>(), "{}: argument {}: expected a Tensor for '{}', got a {}",
             args.function_name(), n, name.substr(0, 100),
             sol::type_name(args.state(), value.get_type()));
    tensors[name] = value.as<TensorHandle&>().get(args.function_name());
  }
  return {tensors.begin(), tensors.end()};
}

void save_file(const Arguments& args) {
  const std::string path = args.path(1, "path");
  MS_CHECK(path.ends_with(".safetensors"),
           "{}: argument 1: expected a path that ends in .safetensors, got '{}'; rename it",
           args.function_name(), path.substr(0, 200));
  const weights::NamedTensors tensors = read_tensors(args, 2);
  weights::Metadata metadata = weights::kPortableMetadata;
  const Json texts = args.options(3);
  for (const auto& [key, value] : texts.items()) {
    MS_CHECK(value.is_string(), "{}: argument 3: expected texts as metadata, got {} for '{}'",
             args.function_name(), value.type_name(), key.substr(0, 100));
    metadata[key] = value.get<std::string>();
  }
  weights::write_safetensors(path, tensors, metadata);
}

sol::object read_config(const Arguments& args) {
  const models::ModelOptions options = weights::options_from_config(args.path(1, "folder"));
  return to_lua(args.state(), load_schema().to_json(&options));
}

sol::object load_folder(const Arguments& args) {
  const std::string folder = args.path(1, "folder");
  models::ModelOptions options = weights::options_from_config(folder);
  load_schema().assign_all(&options, with_lora_options(args, 2));
  plan::refuse_model_that_cannot_fit(models::resolve_model_options(options));
  const std::string path = options.weights.empty() ? folder : options.weights;
  return sol::make_object(args.state(), ModelHandle{weights::load_model(options, path)});
}

sol::object read_weights_field(const Arguments& args) {
  lua_State* L = args.state();
  const weights::WeightSource& source = args.self<WeightsHandle>("Weights").get("Weights");
  const std::string name =
      args.value(2).get_type() == sol::type::string ? args.text(2, "field") : "";
  if (name == "path") return sol::make_object(L, source.path().string());
  if (name == "count") return to_lua(L, Json(source.size()));
  if (name == "metadata") {
    sol::table table(L, sol::create);
    for (const auto& [key, value] : source.metadata()) table.raw_set(key, value);
    return table;
  }
  throw UsageError(fmt::format(
      "Weights: expected a field (metadata, path, count) or a method (names, tensor, close), got "
      "{}",
      name.empty() ? describe_value(L, 2) : "'" + name.substr(0, 100) + "'"));
}

}  // namespace

void bind_model(sol::table ms, sol::table native) {
  ObjectType<ModelHandle> type(ms.lua_state(), "Model");
  type.method("parameter", "(name) -> Tensor",
              "The parameter of that name; the tensor shares the model's memory.",
              [](const Arguments& args) {
                const auto& model = args.self<ModelHandle>("Model").model;
                const at::Tensor& value = model->parameter(args.text(2, "name")).value;
                MS_CHECK(!value.is_meta() || model->options().device == "meta",
                         "{}: expected a whole parameter, got one that is spread over ranks; call "
                         "trainer:gather() on all ranks first",
                         args.function_name());
                return push_tensor(args.state(), value);
              });
  type.method("losses", "(batch) -> Tensor", "One loss per sample, without gradients.",
              on_batch([](auto& model, const Batch& batch) { return model.losses(batch); }));
  type.method("forward", "(batch) -> Tensor", "Scores of a batch, without gradients.",
              on_batch([](auto& model, const Batch& batch) { return model.forward(batch); }));
  type.method("freeze", "(glob) -> count",
              "Leaves the parameters that match out of training; returns how many did.",
              [](const Arguments& args) {
                const auto& model = args.self<ModelHandle>("Model").model;
                return Json(model->freeze(args.text(2, "glob")));
              });
  type.method("save", "(folder) -> list of files",
              "Writes config.json and the weights as safetensors; transformers opens the folder.",
              [](const Arguments& args) {
                const auto& model = args.self<ModelHandle>("Model").model;
                std::vector<std::string> files{"config.json"};
                for (std::string& name : weights::save_model(*model, args.path(2, "folder")))
                  files.push_back(std::move(name));
                return files;
              });
  type.method("save_adapter", "(folder)",
              "Writes the LoRA adapters, and what else is trained, as PEFT does; "
              "ms.model(name, { adapter = folder }) and PEFT open it.",
              [](const Arguments& args) {
                weights::save_adapter(*args.self<ModelHandle>("Model").model,
                                      args.path(2, "folder"));
              });
  type.method("merged", "() -> Model",
              "A model of its own without adapters: each is added to the weight of its layer.",
              [](const Arguments& args) {
                return sol::make_object(
                    args.state(),
                    ModelHandle{weights::merged_model(*args.self<ModelHandle>("Model").model)});
              });
  type.fields({"generate", "name", "num_parameters", "bytes", "options", "parameters", "trainable",
               "layers"},
              &read_model_field);
  native["model_methods"] = type.methods();  // generate is written in Lua
  type.text([](const ModelHandle& handle) {
    const models::Model& model = *handle.model;
    return fmt::format("Model {} ({}, {} parameters, {} {}, {} bytes)", model.options().model,
                       model.options().task, model.num_parameters(), model.options().dtype,
                       model.options().device, model.parameter_bytes());
  });
  define(
      ms, "ms", "model", "(name, { task, dtype, device, hidden_dim, num_layers, … }) -> Model",
      "Builds a model with random weights from its seed, or with `weights` from a file or folder. "
      "ms.models() lists the names; a folder with config.json is a name, too.",
      make_model);
  document_options<models::ModelOptions>("ms.model", models::model_schema(), {"model"});
  define(ms, "ms", "models", "() -> list", "The model presets with their sizes.", list_models);
}

void bind_weights(sol::table ms) {
  ObjectType<WeightsHandle> type(ms.lua_state(), "Weights");
  type.method("names", "() -> list", "The names of all tensors, sorted.",
              [](const Arguments& args) {
                const auto& source = args.self<WeightsHandle>("Weights").get(args.function_name());
                return sol::as_table(source.names());
              });
  type.method("tensor", "(name) -> Tensor", "Reads a tensor, as it is in the file, onto the CPU.",
              [](const Arguments& args) {
                const auto& source = args.self<WeightsHandle>("Weights").get(args.function_name());
                return push_tensor(args.state(), source.read(args.text(2, "name")));
              });
  type.method("close", "()", "Closes the files; what was read stays valid.",
              [](const Arguments& args) { args.self<WeightsHandle>("Weights").source.reset(); });
  type.fields({"metadata", "path", "count"}, &read_weights_field);
  type.text([](const WeightsHandle& handle) {
    if (handle.source == nullptr) return std::string("Weights (closed)");
    return fmt::format("Weights {} ({} tensors)", handle.source->path().string(),
                       handle.source->size());
  });

  sol::table table(ms.lua_state(), sol::create);
  define(table, "ms.weights", "open", "(path) -> Weights",
         "Opens a .safetensors file, an index of shards, or a folder with such files.", open_file);
  define(table, "ms.weights", "save", "(path, { name = Tensor, … }, { metadata })",
         "Writes one safetensors file, whole or not at all. Metadata are texts.", save_file);
  define(table, "ms.weights", "config", "(folder) -> table",
         "Model options from a folder's config.json (llama, qwen2, gemma, dit, linear).",
         read_config);
  define(table, "ms.weights", "load", "(folder, { task, dtype, device, num_labels, … }) -> Model",
         "Builds the model of a Hugging Face folder and loads its weights; options given here win "
         "over its config.json.",
         load_folder);
  document_options<models::ModelOptions>("ms.weights.load", load_schema(), {"model"});
  ms["weights"] = table;
  document(table, "ms.weights", "ms.weights", "Files of weights: open, save, config, load.");
}

}  // namespace moonshard::bindings
