#include "runtime/models/registry.h"

#include <algorithm>
#include <sstream>

#include <fmt/ranges.h>

#include "runtime/models/decoder.h"
#include "runtime/models/dit.h"
#include "runtime/models/linear.h"

namespace moonshard::models {
namespace {

// ---- families ---------------------------------------------------------------------------------

struct Size {
  const char* name;
  int64_t ModelOptions::*field;
};

const std::vector<Size>& sizes_of(Family family) {
  using O = ModelOptions;
  static const std::vector<Size> linear = {{"hidden_dim", &O::hidden_dim},
                                           {"num_layers", &O::num_layers}};
  static const std::vector<Size> decoder = {{"vocab_size", &O::vocab_size},
                                            {"hidden_dim", &O::hidden_dim},
                                            {"intermediate_dim", &O::intermediate_dim},
                                            {"num_layers", &O::num_layers},
                                            {"num_heads", &O::num_heads},
                                            {"num_kv_heads", &O::num_kv_heads}};
  static const std::vector<Size> dit = {
      {"hidden_dim", &O::hidden_dim},   {"intermediate_dim", &O::intermediate_dim},
      {"num_layers", &O::num_layers},   {"num_heads", &O::num_heads},
      {"image_size", &O::image_size},   {"patch_size", &O::patch_size},
      {"in_channels", &O::in_channels}, {"num_classes", &O::num_classes}};
  switch (family) {
    case Family::Linear:
      return linear;
    case Family::Decoder:
      return decoder;
    case Family::Dit:
      return dit;
  }
  return linear;
}

std::unique_ptr<Model> build(Family family, const ModelOptions& options) {
  switch (family) {
    case Family::Linear:
      return std::make_unique<LinearStack>(options);
    case Family::Decoder:
      return std::make_unique<Decoder>(options);
    case Family::Dit:
      return std::make_unique<Dit>(options);
  }
  return nullptr;
}

// ---- presets ----------------------------------------------------------------------------------

Preset linear_preset(const char* name, int64_t width, int64_t layers, int64_t batch,
                     const char* doc) {
  ModelOptions o;
  o.model = name;
  o.task = "regress";
  o.hidden_dim = width;
  o.num_layers = layers;
  return {Family::Linear, o, batch, 1, doc};
}

struct DecoderSizes {
  int64_t vocab = 0, width = 0, inner = 0, layers = 0, heads = 0, kv_heads = 0;
};

Preset decoder_preset(const char* name, const DecoderSizes& sizes, int64_t tokens,
                      const char* doc) {
  ModelOptions o;
  o.model = name;
  o.vocab_size = sizes.vocab;
  o.hidden_dim = sizes.width;
  o.intermediate_dim = sizes.inner;
  o.num_layers = sizes.layers;
  o.num_heads = sizes.heads;
  o.num_kv_heads = sizes.kv_heads;
  o.tie_embeddings = "no";
  o.rope_scaling = "none";
  return {Family::Decoder, o, 2, tokens, doc};
}

Preset llama_preset(const char* name, const DecoderSizes& sizes, int64_t tokens, const char* doc) {
  Preset preset = decoder_preset(name, sizes, tokens, doc);
  preset.sizes.task = "classify";
  preset.sizes.qkv_bias = "no";
  preset.sizes.norm_eps = 1e-5;
  preset.sizes.rope_base = 500000;
  return preset;
}

Preset qwen_preset(const char* name, const DecoderSizes& sizes, int64_t tokens, const char* doc) {
  Preset preset = decoder_preset(name, sizes, tokens, doc);
  preset.sizes.task = "lm";
  preset.sizes.qkv_bias = "yes";
  preset.sizes.norm_eps = 1e-6;
  preset.sizes.rope_base = 1000000;
  return preset;
}

Preset stretched(Preset preset, double factor) {
  preset.sizes.rope_scaling = "llama3";
  preset.sizes.rope_factor = factor;
  return preset;
}

Preset tied(Preset preset) {
  preset.sizes.tie_embeddings = "yes";
  return preset;
}

struct DitSizes {
  int64_t width = 0, layers = 0, heads = 0, image = 0, patch = 0, channels = 0, classes = 0;
};

Preset dit_preset(const char* name, const DitSizes& sizes, const char* positions,
                  const char* affine, const char* doc) {
  ModelOptions o;
  o.model = name;
  o.task = "denoise";
  o.hidden_dim = sizes.width;
  o.intermediate_dim = 4 * sizes.width;
  o.num_layers = sizes.layers;
  o.num_heads = sizes.heads;
  o.image_size = sizes.image;
  o.patch_size = sizes.patch;
  o.in_channels = sizes.channels;
  o.num_classes = sizes.classes;
  o.positions = positions;
  o.norm_affine = affine;
  o.norm_eps = 1e-6;
  o.label_dropout = 0.1;
  const int64_t side = sizes.patch > 0 ? sizes.image / sizes.patch : 0;
  return {Family::Dit, o, 2, side * side, doc};
}

// Families by their names in config.json: the sizes come from there.
const std::vector<Preset>& family_presets() {
  static const std::vector<Preset> list = {
      llama_preset("llama", {}, 1024, "Llama of the sizes given"),
      qwen_preset("qwen", {}, 1024, "Qwen 1.5 or 2.5 of the sizes given"),
      dit_preset("dit", {}, "sincos", "no", "diffusion transformer of the sizes given"),
  };
  return list;
}

// ---- names ------------------------------------------------------------------------------------

bool remove_prefix(std::string& text, const std::string& prefix) {
  const bool has = text.rfind(prefix, 0) == 0;
  if (has) text.erase(0, prefix.size());
  return has;
}

bool remove_suffix(std::string& text, const std::string& suffix) {
  const bool has = text.size() > suffix.size() &&
                   text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
  if (has) text.erase(text.size() - suffix.size());
  return has;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// "meta-llama/Meta-Llama-3.1-8B-Instruct" -> "llama3.1-8b", "facebook/DiT-XL-2-256" -> "dit-xl/2".
// "organisation/Model": one slash, and not a path.
std::string from_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == 0 || slash != name.rfind('/') || name.starts_with(".")) return name;
  std::string text = lower(slash == std::string::npos ? name : name.substr(slash + 1));
  while (remove_suffix(text, "-instruct") || remove_suffix(text, "-chat")) {
  }
  remove_prefix(text, "meta-");
  if (remove_prefix(text, "llama-")) text = "llama" + text;
  if (remove_suffix(text, "-2-256")) text += "/2";
  return text;
}

const Preset* find_by_own_name(const std::string& name) {
  for (const auto* list : {&presets(), &family_presets()}) {
    for (const Preset& preset : *list) {
      if (preset.sizes.model == name) return &preset;
    }
  }
  return nullptr;
}

// ---- resolving --------------------------------------------------------------------------------

template <class T>
void fill(T& value, const T& unset, const T& preset) {
  if (value == unset) value = preset;
}

void fill_rotary(ModelOptions& o, const ModelOptions& preset) {
  fill<double>(o.rope_base, 0, preset.rope_base);
  fill<std::string>(o.rope_scaling, "auto", preset.rope_scaling);
  if (o.rope_scaling != "llama3") return;
  // The published values of Llama 3.1, which 3.2 changes in the factor alone.
  fill<double>(o.rope_factor, 0, preset.rope_factor > 0 ? preset.rope_factor : 8);
  fill<double>(o.rope_low_freq_factor, 0, 1);
  fill<double>(o.rope_high_freq_factor, 0, 4);
  fill<int64_t>(o.rope_original_length, 0, 8192);
}

void check_sizes(const ModelOptions& o, Family family) {
  std::vector<std::string> missing;
  for (const Size& size : sizes_of(family)) {
    if (o.*(size.field) <= 0) missing.push_back(size.name);
  }
  MS_CHECK(missing.empty(),
           "model '{}': expected sizes, got none for {}; give them, take a preset ('moonshard "
           "models' lists them), or name weights whose folder has a config.json",
           o.model, fmt::join(missing, ", "));
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> list = {
      linear_preset("linear", 16384, 8, 8192,
                    "8 x Linear(16384, 16384), the FSDP tutorial's model"),
      linear_preset("linear-tiny", 256, 4, 64, "4 x Linear(256, 256), for a CPU"),
      stretched(llama_preset("llama3.1-8b", {128256, 4096, 14336, 32, 32, 8}, 1024, "Llama 3.1 8B"),
                8),
      tied(stretched(
          llama_preset("llama3.2-1b", {128256, 2048, 8192, 16, 32, 8}, 1024, "Llama 3.2 1B"), 32)),
      llama_preset("llama3-tiny", {1024, 128, 384, 2, 4, 2}, 128,
                   "Llama 3 block structure, for a CPU"),
      stretched(llama_preset("llama3.1-tiny", {1024, 128, 384, 2, 4, 2}, 128,
                             "Llama 3.1 with stretched positions, for a CPU"),
                8),
      tied(stretched(llama_preset("llama3.2-tiny", {1024, 128, 384, 2, 4, 2}, 128,
                                  "Llama 3.2 with tied embeddings, for a CPU"),
                     32)),
      qwen_preset("qwen1.5-1.8b", {151936, 2048, 5504, 24, 16, 16}, 2048, "Qwen 1.5 1.8B"),
      tied(qwen_preset("qwen2.5-1.5b", {151936, 1536, 8960, 28, 12, 2}, 2048, "Qwen 2.5 1.5B")),
      qwen_preset("qwen1.5-tiny", {1024, 128, 352, 2, 4, 4}, 128,
                  "Qwen 1.5 block structure, for a CPU"),
      tied(qwen_preset("qwen2.5-tiny", {1024, 128, 384, 2, 4, 2}, 128,
                       "Qwen 2.5 block structure, for a CPU")),
      dit_preset("dit-l/8", {1024, 24, 16, 256, 8, 3, 1000}, "learned", "no",
                 "DiT-L on 256-pixel images, patch 8"),
      dit_preset("dit-xl/2", {1152, 28, 16, 32, 2, 4, 1000}, "sincos", "no",
                 "DiT-XL on latents of 256-pixel images, patch 2"),
      dit_preset("dit-tiny", {64, 2, 4, 32, 4, 3, 10}, "learned", "no",
                 "DiT on 32-pixel images, for a CPU"),
      dit_preset("dit-xl-tiny", {64, 2, 4, 16, 2, 4, 10}, "sincos", "no",
                 "DiT on 16 x 16 latents, for a CPU"),
  };
  return list;
}

const Preset* look_up(const std::string& name) {
  for (const std::string& known : {name, lower(name), from_hub_name(name)}) {
    if (const Preset* preset = find_by_own_name(known)) return preset;
  }
  return nullptr;
}

bool knows_model(const std::string& name) {
  return look_up(name) != nullptr;
}

const Preset& find_preset(const std::string& name) {
  if (const Preset* preset = look_up(name)) return *preset;
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.sizes.model);
  const std::string near = nearest_name(lower(name), names);
  throw UsageError(fmt::format("model: expected one of {}, got '{}'{}", fmt::join(names, ", "),
                               name,
                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

ModelOptions resolve_model_options(const ModelOptions& options) {
  const Preset& preset = find_preset(options.model);
  const ModelOptions& sizes = preset.sizes;
  ModelOptions o = options;
  o.model = sizes.model;
  for (const Size& size : sizes_of(preset.family)) {
    fill<int64_t>(o.*(size.field), 0, sizes.*(size.field));
  }
  check_sizes(o, preset.family);
  fill<std::string>(o.task, "auto", sizes.task);
  fill<std::string>(o.param_dtype, "auto", o.dtype);
  fill<std::string>(o.tie_embeddings, "auto", sizes.tie_embeddings);
  fill<std::string>(o.qkv_bias, "auto", sizes.qkv_bias);
  fill<std::string>(o.positions, "auto", sizes.positions);
  fill<std::string>(o.norm_affine, "auto", sizes.norm_affine);
  fill<int64_t>(o.num_labels, 0, 3);
  fill<double>(o.norm_eps, 0, sizes.norm_eps);
  fill<double>(o.label_dropout, -1, sizes.label_dropout);
  fill_rotary(o, sizes);
  if (preset.family != Family::Linear && o.head_dim == 0) {
    // Rotary positions turn pairs.
    const int64_t unit = preset.family == Family::Decoder ? 2 : 1;
    MS_CHECK(o.hidden_dim % (o.num_heads * unit) == 0,
             "model '{}': expected hidden_dim = num_heads x {} head size, got {} and {} heads",
             o.model, unit == 2 ? "an even" : "a", o.hidden_dim, o.num_heads);
    o.head_dim = o.hidden_dim / o.num_heads;
  }
  return o;
}

int64_t tokens_per_sample(const ModelOptions& resolved, int64_t seq_length) {
  if (resolved.task == "regress") return 1;
  if (resolved.task != "denoise") return seq_length;
  const int64_t side = resolved.image_size / resolved.patch_size;
  return side * side;
}

std::unique_ptr<Model> make_model(const ModelOptions& options) {
  const ModelOptions resolved = resolve_model_options(options);
  auto model = build(find_preset(resolved.model).family, resolved);
  std::istringstream globs(resolved.frozen);
  for (std::string glob; std::getline(globs, glob, ',');) {
    glob.erase(0, glob.find_first_not_of(' '));
    glob.erase(glob.find_last_not_of(' ') + 1);
    if (!glob.empty()) model->freeze(glob);
  }
  return model;
}

}  // namespace moonshard::models
