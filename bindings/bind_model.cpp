// Models for Lua: ms.model, ms.models, and batches as tables of tensors.
#include <ATen/ATen.h>

#include "bindings/batch_table.h"
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/handles.h"
#include "bindings/tensor_handle.h"
#include "bindings/usertype.h"
#include "runtime/models/model_cost.h"
#include "runtime/models/model_schema.h"
#include "runtime/models/registry.h"
#include "runtime/weights/load_model.h"
#include "runtime/weights/make_model.h"

namespace moonshard::bindings {
namespace {

sol::object make_model(const Arguments& args) {
  models::ModelOptions options;
  options.model = args.text(1, "model name");
  models::model_schema().assign_all(&options, args.options(2));
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
      "layers) or a method (parameter, losses, forward, freeze, save), got '{}'",
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

}  // namespace

void bind_model(sol::table ms) {
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
                return to_lua(args.state(), model->freeze(args.text(2, "glob")));
              });
  type.method("save", "(folder) -> list of files",
              "Writes config.json and the weights as safetensors; transformers opens the folder.",
              [](const Arguments& args) {
                const auto& model = args.self<ModelHandle>("Model").model;
                std::vector<std::string> files{"config.json"};
                for (std::string& name : weights::save_model(*model, args.path(2, "folder")))
                  files.push_back(std::move(name));
                return to_lua(args.state(), files);
              });
  type.fields({"name", "num_parameters", "bytes", "options", "parameters", "trainable", "layers"},
              &read_model_field);
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
  define(ms, "ms", "models", "() -> list", "The model presets with their sizes.", list_models);
}

}  // namespace moonshard::bindings
