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
Batch read_batch(const Arguments& args, int n, const std::string& task) {
  const sol::table table = args.table(n, "batch");
  Batch batch;
  const bool regress = task == "regress";
  struct Field {
    const char* name;
    at::Tensor* tensor;
    bool needed;
  };
  const Field fields[] = {{"input_ids", &batch.input_ids, !regress},
                          {"attention_mask", &batch.attention_mask, task == "classify"},
                          {"labels", &batch.labels, !regress},
                          {"inputs", &batch.inputs, regress},
                          {"targets", &batch.targets, regress}};
  for (const Field& field : fields) {
    const sol::object value = table.raw_get<sol::object>(field.name);
    if (value.is<TensorHandle>()) {
      *field.tensor = value.as<TensorHandle&>().get(args.function_name());
    }
    MS_CHECK(!field.needed || field.tensor->defined(),
             "{}: batch field '{}': expected a Tensor for task {}, got {}; take batches from "
             "data:next()",
             args.function_name(), field.name, task,
             value.get_type() == sol::type::lua_nil ? "nothing" : "something else");
  }
  return batch;
}

template <class F>
auto on_batch(F compute) {
  return [compute](const Arguments& args) {
    const at::NoGradGuard no_grad;
    models::Model& model = *args.self<ModelHandle>("Model").model;
    return push_tensor(args.state(), compute(model, read_batch(args, 2, model.options().task)));
  };
}

}  // namespace

void bind_model(sol::table ms) {
  ObjectType<ModelHandle> type(ms.lua_state(), "Model");
  type.method("parameter", "(name) -> Tensor",
              "The parameter of that name; the tensor shares the model's memory.",
              [](const Arguments& args) {
                const auto& model = args.self<ModelHandle>("Model").model;
                return push_tensor(args.state(), model->parameter(args.text(2, "name")).value);
              });
  type.method("losses", "(batch) -> Tensor", "One loss per sample, without gradients.",
              on_batch([](auto& model, const Batch& batch) { return model.losses(batch); }));
  type.method("forward", "(batch) -> Tensor", "Scores of a batch, without gradients.",
              on_batch([](auto& model, const Batch& batch) { return model.forward(batch); }));
  type.fields({"name", "num_parameters", "bytes", "options", "parameters"}, &read_field);
  type.text([](const ModelHandle& handle) {
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
