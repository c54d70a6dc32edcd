#include "runtime/weights/hf_config.h"

#include <cmath>
#include <system_error>

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/weights/foreign_json.h"
#include "runtime/weights/labels.h"
#include "runtime/weights/weight_source.h"

namespace moonshard::weights {
namespace {

using models::ModelOptions;
using nlohmann::json;

// A config of 21,000 classes names each twice, in less than this.
constexpr ForeignLimits kConfigLimits{8u << 20, 200'000, 32};
constexpr double kUnset = -1;

// What transformers takes when a config leaves these out.
constexpr double kDefaultNormEps = 1e-6;
constexpr double kDefaultRopeBase = 10000;
constexpr int64_t kDefaultLabels = 2;

// One object of the file, with look-ups that name file and key when they fail. A null counts as
// absent, as it does to the libraries that write it.
class Config {
 public:
  Config(json values, std::string where) : values_(std::move(values)), where_(std::move(where)) {}

  bool has(const char* key) const {
    const auto found = values_.find(key);
    return found != values_.end() && !found->is_null();
  }
  const json& get(const char* key) const { return values_.at(key); }

  int64_t integer(const char* key, int64_t min, int64_t max) const {
    require(key, fmt::format("a whole number from {} to {}", min, max));
    const json& value = get(key);
    const bool fits =
        value.is_number_unsigned() ? value.get<uint64_t>() <= INT64_MAX : value.is_number_integer();
    if (!fits || value.get<int64_t>() < min || value.get<int64_t>() > max) {
      fail(key, fmt::format("a whole number from {} to {}", min, max));
    }
    return value.get<int64_t>();
  }
  int64_t integer_or(const char* key, int64_t min, int64_t max, int64_t fallback) const {
    return has(key) ? integer(key, min, max) : fallback;
  }
  double number(const char* key, double min, double max) const {
    require(key, "a number");
    const json& value = get(key);
    if (!value.is_number() || !(value.get<double>() >= min) || !(value.get<double>() <= max)) {
      fail(key, fmt::format("a number from {} to {}", min, max));
    }
    return value.get<double>();
  }
  double number_or(const char* key, double min, double max, double fallback) const {
    return has(key) ? number(key, min, max) : fallback;
  }
  bool boolean_or(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!get(key).is_boolean()) fail(key, "true or false");
    return get(key).get<bool>();
  }
  std::string text_or(const char* key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    if (!get(key).is_string()) fail(key, "a text");
    return get(key).get<std::string>();
  }
  Config object(const char* key) const {
    if (!get(key).is_object()) fail(key, "an object");
    return {get(key), fmt::format("{}: '{}'", where_, key)};
  }

  void require(const char* key, const std::string& expected) const {
    if (has(key)) return;
    throw UsageError(fmt::format("{}: key '{}': expected {}, got none; the config is not complete",
                                 where_, key, expected));
  }
  [[noreturn]] void fail(const char* key, const std::string& expected) const {
    std::string got = get(key).dump(-1, ' ', true, json::error_handler_t::replace);
    if (got.size() > 60) got = got.substr(0, 60) + "...";
    throw UsageError(
        fmt::format("{}: key '{}': expected {}, got {}; correct the file or use a "
                    "model that is supported",
                    where_, key, expected, got));
  }

 private:
  json values_;
  std::string where_;
};

// ---- decoders ---------------------------------------------------------------------------------

// The limits of the options' own descriptors: what passes here can be given by hand, too.
void read_transformer_sizes(const Config& config, ModelOptions& o) {
  o.hidden_dim = config.integer("hidden_size", 1, 1'000'000);
  o.num_layers = config.integer("num_hidden_layers", 1, 10'000);
  o.num_heads = config.integer("num_attention_heads", 1, 10'000);
}

void read_rope(const Config& config, ModelOptions& o) {
  // Newer files keep the base and the scaling in one object; older ones apart.
  const bool is_new = config.has("rope_parameters");
  const char* key = is_new ? "rope_parameters" : "rope_scaling";
  o.rope_base = config.number_or("rope_theta", 1, 1e12, kDefaultRopeBase);
  o.rope_scaling = "none";
  if (!config.has(key)) return;
  const Config rope = config.object(key);
  if (is_new) o.rope_base = rope.number_or("rope_theta", 1, 1e12, o.rope_base);
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.text_or(type_key, "default");
  if (type == "default") return;
  if (type != "llama3") rope.fail(type_key, "default or llama3");
  o.rope_scaling = "llama3";
  o.rope_factor = rope.number("factor", 1, 1e6);
  o.rope_low_freq_factor = rope.number("low_freq_factor", 1e-6, 1e6);
  o.rope_high_freq_factor = rope.number("high_freq_factor", 1e-6, 1e6);
  o.rope_original_length = rope.integer("original_max_position_embeddings", 1, 1'000'000'000);
}

// 16-bit and 32-bit weights are opened as float32, which holds them all; double ones would lose
// digits there.
void read_format(const Config& config, ModelOptions& o) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (config.has(key) && config.get(key).is_string() && config.get(key) == "float64")
      o.dtype = "float64";
  }
}

void read_task(const Config& config, ModelOptions& o) {
  if (config.has("id2label")) {
    if (!config.get("id2label").is_object() || config.get("id2label").empty())
      config.fail("id2label", "an object of numbers and labels");
    o.num_labels = static_cast<int64_t>(config.get("id2label").size());
  } else {
    o.num_labels = config.integer_or("num_labels", 1, 1'000'000, 0);
  }
  if (config.has("architectures")) {
    const json& list = config.get("architectures");
    if (!list.is_array() || list.empty() || !list[0].is_string())
      config.fail("architectures", "a list of names");
    const auto name = list[0].get<std::string>();
    if (name.ends_with("ForSequenceClassification")) {
      o.task = "classify";
      if (o.num_labels == 0) o.num_labels = kDefaultLabels;
    } else if (name.ends_with("ForCausalLM")) {
      o.task = "lm";
    } else if (!name.ends_with("Model")) {
      config.fail("architectures", "...ForCausalLM, ...ForSequenceClassification or ...Model");
    }
  }
}

// Things of other models of the same type that would change the results.
void refuse_unsupported(const Config& config, bool is_qwen) {
  if (config.text_or("hidden_act", "silu") != "silu")
    config.fail("hidden_act", "silu, the one activation that is supported,");
  if (config.boolean_or("use_sliding_window", false)) {
    config.fail("use_sliding_window", "false (sliding-window attention is not supported)");
  }
  if (!is_qwen && config.boolean_or("attention_bias", false))
    config.fail("attention_bias", "false (biases in llama's attention are not supported)");
  if (config.boolean_or("mlp_bias", false))
    config.fail("mlp_bias", "false (biases in the MLP are not supported)");
  if (config.number_or("partial_rotary_factor", 0, 1, 1) != 1)
    config.fail("partial_rotary_factor", "1 (turning part of a head is not supported)");
  if (config.has("quantization_config"))
    config.fail("quantization_config", "no quantised weights (they are not supported)");
}

ModelOptions read_decoder(const Config& config, bool is_qwen) {
  refuse_unsupported(config, is_qwen);
  ModelOptions o;
  o.model = is_qwen ? "qwen" : "llama";
  read_transformer_sizes(config, o);
  o.vocab_size = config.integer("vocab_size", 1, 10'000'000);
  o.intermediate_dim = config.integer("intermediate_size", 1, 10'000'000);
  o.num_kv_heads = config.integer_or("num_key_value_heads", 1, o.num_heads, o.num_heads);
  if (o.num_heads % o.num_kv_heads != 0)
    config.fail("num_key_value_heads", fmt::format("a divisor of {} heads", o.num_heads));
  if (!config.has("head_dim") && o.hidden_dim % o.num_heads != 0)
    config.fail("hidden_size", fmt::format("a multiple of {} heads, or head_dim", o.num_heads));
  o.head_dim = config.integer_or("head_dim", 1, 100'000, o.hidden_dim / o.num_heads);
  o.norm_eps = config.number_or("rms_norm_eps", 1e-30, 1, kDefaultNormEps);
  o.tie_embeddings = config.boolean_or("tie_word_embeddings", false) ? "yes" : "no";
  o.qkv_bias = is_qwen ? "yes" : "no";
  o.pad_token_id = config.integer_or("pad_token_id", -1, o.vocab_size - 1, -1);
  read_rope(config, o);
  read_task(config, o);
  read_format(config, o);
  return o;
}

// ---- our own ----------------------------------------------------------------------------------

ModelOptions read_dit(const Config& config) {
  ModelOptions o;
  o.model = "dit";
  read_format(config, o);
  o.task = "denoise";
  read_transformer_sizes(config, o);
  if (o.hidden_dim % o.num_heads != 0)
    config.fail("hidden_size", fmt::format("a multiple of {} heads", o.num_heads));
  o.head_dim = o.hidden_dim / o.num_heads;
  o.intermediate_dim = config.integer("intermediate_size", 1, 10'000'000);
  o.image_size = config.integer("image_size", 1, 100'000);
  o.patch_size = config.integer("patch_size", 1, 10'000);
  if (o.image_size % o.patch_size != 0)
    config.fail("image_size", fmt::format("a multiple of patch_size {}", o.patch_size));
  o.in_channels = config.integer("in_channels", 1, 10'000);
  o.num_classes = config.integer("num_classes", 1, 10'000'000);
  o.positions = config.text_or("positions", "sincos");
  if (o.positions != "sincos" && o.positions != "learned")
    config.fail("positions", "learned or sincos");
  o.norm_affine = config.boolean_or("norm_affine", false) ? "yes" : "no";
  o.norm_eps = config.number_or("layer_norm_eps", 1e-30, 1, 0);
  o.label_dropout = config.number_or("label_dropout", 0, 1, kUnset);
  return o;
}

ModelOptions read_linear(const Config& config) {
  ModelOptions o;
  o.model = "linear";
  read_format(config, o);
  o.task = "regress";
  o.hidden_dim = config.integer("hidden_size", 1, 1'000'000);
  o.num_layers = config.integer("num_hidden_layers", 1, 10'000);
  return o;
}

}  // namespace

ModelOptions options_from_config(const std::filesystem::path& folder) {
  check_weights_exist(folder);
  const std::filesystem::path path = folder / "config.json";
  std::error_code ignored;
  MS_CHECK(std::filesystem::exists(path, ignored),
           "weights: expected a folder with a config.json, got {}; name the folder of the model, "
           "not one of its files",
           in_quotes(folder.string()));
  const Config config(read_foreign_json(path, kConfigLimits), path.string());
  config.require("model_type", "llama, qwen2, dit or linear");
  const std::string type = config.text_or("model_type", "");
  if (type == "llama") return read_decoder(config, false);
  if (type == "qwen2") return read_decoder(config, true);
  if (type == "dit") return read_dit(config);
  if (type == "linear") return read_linear(config);
  config.fail("model_type", "llama, qwen2, dit or linear");
}

}  // namespace moonshard::weights
