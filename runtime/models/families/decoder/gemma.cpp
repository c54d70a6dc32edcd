// Gemma 2, Gemma 3 (its text part) and VaultGemma: presets, and config.json as transformers 4 and 5
// write it.
#include <algorithm>
#include <cmath>

#include "runtime/models/families/decoder/decoder.h"
#include "runtime/models/families/decoder/decoder_parts.h"

namespace moonshard::models {
namespace {

// ---- presets ----------------------------------------------------------------------------------

// What the published models of a kind have in common.
Preset gemma_preset(const char* name, const char* style, const DecoderSizes& sizes, int64_t tokens,
                    const char* doc) {
  Preset preset = decoder_preset(name, sizes, tokens, doc);
  ModelOptions& o = preset.sizes;
  o.task = "lm";
  o.block_style = style;
  o.qkv_bias = "no";
  o.tie_embeddings = "yes";
  o.norm_eps = 1e-6;
  o.rope_base = 10000;
  if (!preset.has_sizes) return preset;
  o.head_dim = 256;
  o.attention_pattern = "g";
  if (o.block_style == "gemma3") {
    o.attention_pattern = "lllllg";
    o.rope_base = 1000000;
    o.rope_local_base = 10000;
    return preset;
  }
  o.attention_softcap = 50;
  o.logit_softcap = 30;
  if (o.block_style == "gemma2") {
    o.attention_pattern = "lg";
    o.attention_window = 4096;
  }
  return preset;
}

Preset windowed(Preset preset, int64_t window) {
  preset.sizes.attention_window = window;
  return preset;
}

Preset stretched_all(Preset preset, double factor) {
  preset.sizes.rope_scaling = "linear";
  preset.sizes.rope_factor = factor;
  return preset;
}

Preset tiny(const char* name, const char* style, const char* doc) {
  Preset preset = gemma_preset(name, style, {1024, 64, 160, 2, 4, 1}, 128, doc);
  ModelOptions& o = preset.sizes;
  o.head_dim = 32;
  if (o.block_style == "vaultgemma") return preset;
  o.num_kv_heads = 2;
  o.attention_pattern = "lg";
  o.attention_window = 32;
  return o.block_style == "gemma3" ? stretched_all(preset, 8) : preset;
}

// ---- config.json ------------------------------------------------------------------------------

// Defaults are those of transformers' configuration classes.
struct GemmaKind {
  const char *type, *style, *architecture, *pattern;
  int64_t vocab;
  double softcap, logit_softcap;
};

constexpr GemmaKind kKinds[] = {
    {"gemma2", "gemma2", "Gemma2", "lg", 256000, 50, 30},
    {"gemma3_text", "gemma3", "Gemma3", "lllllg", 262208, 0, 0},
    {"vaultgemma", "vaultgemma", "VaultGemma", "lg", 256000, 50, 30},
};

const GemmaKind& kind_of_style(const std::string& style) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [&](const GemmaKind& kind) { return style == kind.style; });
}

// The shortest pattern that repeated gives this one.
std::string shortest_period(const std::string& letters) {
  for (size_t length = 1; length < letters.size(); ++length) {
    bool repeats = true;
    for (size_t i = length; repeats && i < letters.size(); ++i)
      repeats = letters[i] == letters[i - length];
    if (repeats) return letters.substr(0, length);
  }
  return letters;
}

std::string read_pattern(const ConfigObject& config, const GemmaKind& kind, int64_t num_layers) {
  if (config.has("layer_types")) {
    const nlohmann::json& list = config.get("layer_types");
    const std::string expected =
        fmt::format("a list of {} \"full_attention\" or \"sliding_attention\"", num_layers);
    if (!list.is_array() || list.size() != static_cast<size_t>(num_layers))
      config.fail("layer_types", expected);
    std::string letters;
    for (const nlohmann::json& type : list) {
      if (type != "full_attention" && type != "sliding_attention")
        config.fail("layer_types", expected);
      letters += type == "full_attention" ? 'g' : 'l';
    }
    return shortest_period(letters);
  }
  if (kind.style != std::string("gemma3") || !config.has("sliding_window_pattern"))
    return kind.pattern;
  const int64_t every = config.integer("sliding_window_pattern", 1, 10'000);
  return std::string(static_cast<size_t>(every - 1), 'l') + 'g';
}

// A cap that is null is none; one that is not there is the class's.
double read_cap(const ConfigObject& config, const char* key, double fallback) {
  if (config.is_null(key)) return 0;
  return config.number_or(key, 1e-6, 1e6, fallback);
}

// One object {"rope_type", "rope_theta", "factor"}, of which old files have the base elsewhere.
void read_scaling(const ConfigObject& rope, ModelOptions& o) {
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.text_or(type_key, "default");
  if (type != "default" && type != "linear") rope.fail(type_key, "default or linear");
  o.rope_base = rope.number_or("rope_theta", 1, 1e12, o.rope_base);
  o.rope_scaling = type == "linear" ? "linear" : "none";
  if (type == "linear") o.rope_factor = rope.number("factor", 1, 1e6);
}

void read_gemma_rope(const ConfigObject& config, bool two_bases, ModelOptions& o) {
  o.rope_scaling = "none";
  o.rope_base = config.number_or("rope_theta", 1, 1e12, two_bases ? 1e6 : 1e4);
  if (two_bases) o.rope_local_base = config.number_or("rope_local_base_freq", 1, 1e12, 1e4);
  if (config.has("rope_scaling")) read_scaling(config.object("rope_scaling"), o);
  if (!config.has("rope_parameters")) return;
  const ConfigObject rope = config.object("rope_parameters");
  if (!two_bases) return read_scaling(rope, o);
  if (rope.has("full_attention")) read_scaling(rope.object("full_attention"), o);
  if (!rope.has("sliding_attention")) return;
  const ConfigObject local = rope.object("sliding_attention");
  if (local.text_or("rope_type", "default") != "default")
    local.fail("rope_type", "default (stretched positions in local layers are not supported)");
  o.rope_local_base = local.number_or("rope_theta", 1, 1e12, o.rope_local_base);
}

void refuse_other_gemma(const ConfigObject& config) {
  if (config.text_or("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh")
    config.fail("hidden_activation", "gelu_pytorch_tanh, the one that is supported,");
  if (config.boolean_or("attention_bias", false))
    config.fail("attention_bias", "false (biases in Gemma's attention are not supported)");
  if (config.boolean_or("use_bidirectional_attention", false))
    config.fail("use_bidirectional_attention", "false (attention is causal)");
  if (config.has("quantization_config"))
    config.fail("quantization_config", "no quantised weights (they are not supported)");
}

ModelOptions read_text_config(const ConfigObject& config, const GemmaKind& kind) {
  refuse_other_gemma(config);
  const bool is_gemma3 = kind.style == std::string("gemma3");
  ModelOptions o;
  o.model = kind.style;
  o.block_style = kind.style;
  o.qkv_bias = "no";
  o.hidden_dim = config.integer("hidden_size", 1, 1'000'000);
  o.num_layers = config.integer("num_hidden_layers", 1, 10'000);
  o.intermediate_dim = config.integer("intermediate_size", 1, 10'000'000);
  o.vocab_size = config.integer_or("vocab_size", 1, 10'000'000, kind.vocab);
  o.num_heads = config.integer_or("num_attention_heads", 1, 10'000, 8);
  o.num_kv_heads = config.integer_or("num_key_value_heads", 1, o.num_heads, 4);
  if (o.num_heads % o.num_kv_heads != 0)
    config.fail("num_key_value_heads", fmt::format("a divisor of {} heads", o.num_heads));
  o.head_dim = config.integer_or("head_dim", 1, 100'000, 256);
  o.norm_eps = config.number_or("rms_norm_eps", 1e-30, 1, 1e-6);
  o.tie_embeddings = config.boolean_or("tie_word_embeddings", true) ? "yes" : "no";
  o.pad_token_id = config.is_null("pad_token_id")
                       ? -1
                       : config.integer_or("pad_token_id", -1, o.vocab_size - 1, 0);
  o.attention_scalar = config.number_or("query_pre_attn_scalar", 1e-6, 1e6, 256);
  o.attention_softcap = read_cap(config, "attn_logit_softcapping", kind.softcap);
  o.logit_softcap = read_cap(config, "final_logit_softcapping", kind.logit_softcap);
  o.attention_pattern = read_pattern(config, kind, o.num_layers);
  if (o.attention_pattern.find('l') != std::string::npos) {
    o.attention_window = config.is_null("sliding_window")
                             ? -1
                             : config.integer_or("sliding_window", 1, 1'000'000'000, 4096);
  }
  read_gemma_rope(config, is_gemma3, o);
  return o;
}

}  // namespace

std::vector<Preset> gemma_presets() {
  // Sizes: config.json of google/gemma-2-2b, -2-9b, -3-1b-pt and -3-4b-pt; the technical report of
  // VaultGemma, whose layers are all global.
  return {
      gemma_preset("gemma-2-2b", "gemma2", {256000, 2304, 9216, 26, 8, 4}, 1024, "Gemma 2 2B"),
      gemma_preset("gemma-2-9b", "gemma2", {256000, 3584, 14336, 42, 16, 8}, 1024, "Gemma 2 9B"),
      windowed(
          gemma_preset("gemma-3-1b", "gemma3", {262144, 1152, 6912, 26, 4, 1}, 1024, "Gemma 3 1B"),
          512),
      stretched_all(windowed(gemma_preset("gemma-3-4b", "gemma3", {262208, 2560, 10240, 34, 8, 4},
                                          1024, "text part of Gemma 3 4B"),
                             1024),
                    8),
      gemma_preset("vaultgemma-1b", "vaultgemma", {256000, 1152, 6912, 26, 4, 1}, 1024,
                   "VaultGemma 1B"),
      tiny("gemma2-tiny", "gemma2", "Gemma 2 block structure, for a CPU"),
      tiny("gemma3-tiny", "gemma3", "Gemma 3 block structure, for a CPU"),
      tiny("vaultgemma-tiny", "vaultgemma", "VaultGemma block structure, for a CPU"),
      gemma_preset("gemma2", "gemma2", {}, 1024, "Gemma 2 of the sizes given"),
      gemma_preset("gemma3", "gemma3", {}, 1024, "Gemma 3 of the sizes given"),
      gemma_preset("vaultgemma", "vaultgemma", {}, 1024, "VaultGemma of the sizes given"),
  };
}

ModelOptions read_gemma_config(const ConfigObject& config) {
  const std::string type = config.text_or("model_type", "");
  if (type == "gemma3") {
    config.require("text_config", "the text part's config");
    ModelOptions o = read_text_config(config.object("text_config"), kind_of_style("gemma3"));
    // The outer file says what both parts share.
    o.tie_embeddings =
        config.boolean_or("tie_word_embeddings", o.tie_embeddings == "yes") ? "yes" : "no";
    o.task = "lm";
    return o;
  }
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [&](const GemmaKind& known) { return type == known.type; });
  ModelOptions o = read_text_config(config, *kind);
  read_task(config, o);
  return o;
}

Json write_gemma_config(const ModelOptions& o) {
  const GemmaKind& kind = kind_of_style(o.block_style);
  const bool classify = o.task == "classify";
  const auto cap = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  // transformers takes no fraction here, not even one of zero.
  const double scalar =
      o.attention_scalar > 0 ? o.attention_scalar : static_cast<double>(o.head_dim);
  // transformers asks for a window also where no layer has one, and has no word for "all".
  constexpr int64_t kUnused = 4096, kAll = 1'000'000'000;
  const int64_t window = o.attention_window > 0   ? o.attention_window
                         : o.attention_window < 0 ? kAll
                                                  : kUnused;
  Json types = Json::array();
  for (int64_t i = 0; i < o.num_layers; ++i)
    types.push_back(is_local_layer(o, i) ? "sliding_attention" : "full_attention");
  const char* suffix = !classify                   ? "ForCausalLM"
                       : o.block_style == "gemma3" ? "TextForSequenceClassification"
                                                   : "ForSequenceClassification";
  Json config = shared_config(o, std::string(kind.architecture) + suffix, kind.type);
  config.update({
      {"hidden_activation", "gelu_pytorch_tanh"},
      {"max_position_embeddings", 32768},  // which readers use for their caches only
      {"attention_bias", false},
      {"query_pre_attn_scalar",
       scalar == std::floor(scalar) ? Json(std::llround(scalar)) : Json(scalar)},
      {"attn_logit_softcapping", cap(o.attention_softcap)},
      {"final_logit_softcapping", cap(o.logit_softcap)},
      {"layer_types", types},
      {"sliding_window", window},
  });
  if (o.rope_local_base > 0) config["rope_local_base_freq"] = o.rope_local_base;
  if (o.rope_scaling == "linear")
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", o.rope_factor}};
  if (classify) write_labels(o, config);
  return config;
}

}  // namespace moonshard::models
