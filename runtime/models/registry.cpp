#include "runtime/models/registry.h"

#include <fmt/ranges.h>

#include "runtime/models/linear.h"
#include "runtime/models/llama.h"

namespace moonshard::models {
namespace {

template <class M>
std::unique_ptr<Model> build(const ModelOptions& options) {
  return std::make_unique<M>(options);
}

Preset linear_preset(const char* name, int64_t width, int64_t layers, int64_t batch,
                     const char* doc) {
  ModelOptions sizes;
  sizes.model = name;
  sizes.task = "regress";
  sizes.hidden_dim = width;
  sizes.num_layers = layers;
  return {sizes, batch, 1, doc, &build<LinearStack>};
}

Preset llama_preset(const char* name, int64_t vocab, int64_t width, int64_t inner, int64_t layers,
                    int64_t heads, int64_t kv_heads, int64_t tokens, const char* doc) {
  ModelOptions sizes;
  sizes.model = name;
  sizes.task = "classify";
  sizes.vocab_size = vocab;
  sizes.hidden_dim = width;
  sizes.intermediate_dim = inner;
  sizes.num_layers = layers;
  sizes.num_heads = heads;
  sizes.num_kv_heads = kv_heads;
  return {sizes, 2, tokens, doc, &build<Llama>};
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> list = {
      linear_preset("linear", 16384, 8, 8192,
                    "8 x Linear(16384, 16384), the FSDP tutorial's model"),
      linear_preset("linear-tiny", 256, 4, 64, "4 x Linear(256, 256), for a CPU"),
      llama_preset("llama3-tiny", 1024, 128, 384, 2, 4, 2, 128,
                   "Llama 3 block structure, for a CPU"),
  };
  return list;
}

const Preset& find_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.sizes.model == name) return preset;
    names.push_back(preset.sizes.model);
  }
  const std::string near = nearest_name(name, names);
  throw UsageError(fmt::format("model: expected one of {}, got '{}'{}", fmt::join(names, ", "),
                               name,
                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

ModelOptions resolve_model_options(const ModelOptions& options) {
  const ModelOptions& sizes = find_preset(options.model).sizes;
  ModelOptions resolved = options;
  if (resolved.task == "auto") resolved.task = sizes.task;
  const auto fill = [](int64_t& size, int64_t preset) {
    if (size == 0) size = preset;
  };
  fill(resolved.vocab_size, sizes.vocab_size);
  fill(resolved.hidden_dim, sizes.hidden_dim);
  fill(resolved.intermediate_dim, sizes.intermediate_dim);
  fill(resolved.num_layers, sizes.num_layers);
  fill(resolved.num_heads, sizes.num_heads);
  fill(resolved.num_kv_heads, sizes.num_kv_heads);
  return resolved;
}

std::unique_ptr<Model> make_model(const ModelOptions& options) {
  const ModelOptions resolved = resolve_model_options(options);
  return find_preset(resolved.model).build(resolved);
}

}  // namespace moonshard::models
