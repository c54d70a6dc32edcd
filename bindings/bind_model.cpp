// Models for Lua: ms.model, ms.models, and batches as tables of tensors.
#include <ATen/ATen.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/handles.h"
#include "bindings/tensor_handle.h"
#include "bindings/usertype.h"
#include "runtime/models/registry.h"

namespace moonshard::bindings {
namespace {

const OptionSchema& model_schema() {
  static const OptionSchema schema = [] {
    OptionSchema s("model");
    models::add_model_options<models::ModelOptions>(s);
    return s;
  }();
  return schema;
}

sol::object make(const Arguments& args) {
  models::ModelOptions options;
  options.model = args.text(1, "model name");
  model_schema().assign_all(&options, args.options(2));
  return sol::make_object(args.state(), ModelHandle{models::make_model(options)});
}

sol::object list_models(const Arguments& args) {
  Json list = Json::array();
  for (const models::Preset& preset : models::presets()) {
    models::ModelOptions shapes = preset.sizes;
    shapes.device = "meta";
    const auto model = models::make_model(shapes);
    list.push_back({{"name", preset.sizes.model},
                    {"task", preset.sizes.task},
                    {"num_parameters", model->num_parameters()},
                    {"parameter_bytes", model->parameter_bytes()},
                    {"batch_size", preset.batch_size},
                    {"seq_length", preset.seq_length},
                    {"doc", preset.doc}});
  }
  return to_lua(args.state(), list);
}

sol::object read_field(const Arguments& args) {
  lua_State* L = args.state();
  const models::Model& model = *args.self<ModelHandle>("Model").model;
  const std::string name = args.text(2, "field");
  if (name == "name") return sol::make_object(L, model.options().model);
  if (name == "num_parameters") return to_lua(L, model.num_parameters());
  if (name == "bytes") return to_lua(L, model.parameter_bytes());
  if (name == "options") return to_lua(L, model_schema().to_json(&model.options()));
  if (name == "parameters") {
    Json names = Json::array();
    for (const auto& parameter : model.parameters()) names.push_back(parameter->name);
    return to_lua(L, names);
  }
  throw UsageError(fmt::format(
      "Model: expected a field (name, num_parameters, bytes, options, parameters) or a method "
      "(parameter, losses, forward), got '{}'",
      name));
}

// A batch is a table of tensors with the names of the Batch struct.
Batch read_batch(const Arguments& args, int n) {
  const sol::table table = args.table(n, "batch");
  Batch batch;
  const std::pair<const char*, at::Tensor*> fields[] = {{"input_ids", &batch.input_ids},
                                                        {"attention_mask", &batch.attention_mask},
                                                        {"labels", &batch.labels},
                                                        {"inputs", &batch.inputs},
                                                        {"targets", &batch.targets}};
  for (const auto& [name, tensor] : fields) {
    const sol::object value = table[name];
    if (value.is<TensorHandle>()) *tensor = value.as<TensorHandle&>().get(args.function_name());
  }
  MS_CHECK(batch.input_ids.defined() || batch.inputs.defined(),
           "{}: expected a batch with input_ids or inputs, got neither; "
           "take one from data:next()",
           args.function_name());
  return batch;
}

template <class F>
auto on_batch(F compute) {
  return [compute](const Arguments& args) {
    const at::NoGradGuard no_grad;
    models::Model& model = *args.self<ModelHandle>("Model").model;
    return push_tensor(args.state(), compute(model, read_batch(args, 2)));
  };
}

}  // namespace

void bind_model(sol::table ms) {
  lua_State* L = ms.lua_state();
  auto type = new_type<ModelHandle>(L, "moonshard.Model");
  sol::table methods(L, sol::create);
  define(methods, "Model:", "parameter", "(name) -> Tensor",
         "The parameter of that name; the tensor shares the model's memory.",
         [](const Arguments& args) {
           return push_tensor(
               args.state(),
               args.self<ModelHandle>("Model").model->parameter(args.text(2, "name")).value);
         });
  define(methods, "Model:", "losses", "(batch) -> Tensor",
         "One loss per sample, without gradients.",
         on_batch([](auto& model, const Batch& batch) { return model.losses(batch); }));
  define(methods, "Model:", "forward", "(batch) -> Tensor", "Scores of a batch, without gradients.",
         on_batch([](auto& model, const Batch& batch) { return model.forward(batch); }));
  add_methods(type, methods, {"name", "num_parameters", "bytes", "options", "parameters"});
  add_fields(type, "Model", read_field);
  add_text(type, "Model", [](const ModelHandle& handle) {
    const models::Model& model = *handle.model;
    return fmt::format("Model {} ({}, {} parameters, {} {}, {} bytes)", model.options().model,
                       model.options().task, model.num_parameters(), model.options().dtype,
                       model.options().device, model.parameter_bytes());
  });
  define(ms, "ms", "model", "(name, { task, dtype, device, hidden_dim, num_layers, … }) -> Model",
         "Builds a model with random weights from its seed. ms.models() lists the names.", make);
  define(ms, "ms", "models", "() -> list", "The model presets with their sizes.", list_models);
}

}  // namespace moonshard::bindings
