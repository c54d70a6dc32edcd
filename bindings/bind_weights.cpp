// Weights for Lua, in ms.weights: files and folders of safetensors, configs, models from them.
#include <ATen/ATen.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/handles.h"
#include "bindings/tensor_handle.h"
#include "bindings/usertype.h"
#include "runtime/weights/hf_config.h"
#include "runtime/weights/load_model.h"
#include "runtime/weights/safetensors_writer.h"
#include "runtime/weights/weight_source.h"

namespace moonshard::bindings {
namespace {

struct WeightsHandle {
  std::shared_ptr<weights::WeightSource> source;  ///< null after close()

  const weights::WeightSource& get(const char* function) const {
    MS_CHECK(source != nullptr, "{}: expected open weights, got closed ones; open them again",
             function);
    return *source;
  }
};

const OptionSchema& load_schema() {
  static const OptionSchema schema = [] {
    OptionSchema s("ms.weights.load");
    models::add_model_options<models::ModelOptions>(s);
    return s;
  }();
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
  load_schema().assign_all(&options, args.options(2));
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

void bind_weights(sol::table ms) {
  ObjectType<WeightsHandle> type(ms.lua_state(), "Weights");
  type.method("names", "() -> list", "The names of all tensors, sorted.",
              [](const Arguments& args) {
                const auto& source = args.self<WeightsHandle>("Weights").get(args.function_name());
                return sol::make_object(args.state(), sol::as_table(source.names()));
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
         "Model options from a folder's config.json (llama, qwen2, dit, linear).", read_config);
  define(table, "ms.weights", "load", "(folder, { task, dtype, device, num_labels, … }) -> Model",
         "Builds the model of a Hugging Face folder and loads its weights; options given here win "
         "over its config.json.",
         load_folder);
  ms["weights"] = table;
  document(table, "ms.weights", "ms.weights", "Files of weights: open, save, config, load.");
}

}  // namespace moonshard::bindings
