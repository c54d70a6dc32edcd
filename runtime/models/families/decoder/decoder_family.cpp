// The family of decoder-only transformers: presets, batches, and config.json of Llama and Qwen2
// folders. What a config asks for and our decoders do not have is an error, never a silent
// difference. Gemma's presets and configs are in gemma.cpp.
#include <algorithm>
#include <cmath>
#include <map>

#include <ATen/ATen.h>

#include "runtime/models/batch_check.h"
#include "runtime/models/config_object.h"
#include "runtime/models/families/decoder/decoder.h"
#include "runtime/models/families/decoder/decoder_cost.h"
#include "runtime/models/families/decoder/decoder_parts.h"
#include "runtime/models/family.h"
#include "runtime/models/model_cost.h"

namespace moonshard::models {
namespace {

// ---- presets ----------------------------------------------------------------------------------

Preset llama_preset(const char* name, const DecoderSizes& sizes, int64_t tokens, const char* doc) {
  Preset preset = decoder_preset(name, sizes, tokens, doc);
  preset.sizes.task = "classify";
  preset.sizes.block_style = "llama";
  preset.sizes.qkv_bias = "no";
  preset.sizes.norm_eps = 1e-5;
  preset.sizes.rope_base = 500000;
  return preset;
}

Preset qwen_preset(const char* name, const DecoderSizes& sizes, int64_t tokens, const char* doc) {
  Preset preset = decoder_preset(name, sizes, tokens, doc);
  preset.sizes.task = "lm";
  preset.sizes.block_style = "llama";
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

// ---- config.json ------------------------------------------------------------------------------

// What transformers takes when a config leaves these out.
constexpr double kDefaultNormEps = 1e-6;
constexpr double kDefaultRopeBase = 10000;

void read_rope(const ConfigObject& config, ModelOptions& o) {
  // Newer files keep the base and the scaling in one object; older ones apart.
  const bool is_new = config.has("rope_parameters");
  const char* key = is_new ? "rope_parameters" : "rope_scaling";
  o.rope_base = config.number_or("rope_theta", 1, 1e12, kDefaultRopeBase);
  o.rope_scaling = "none";
  if (!config.has(key)) return;
  const ConfigObject rope = config.object(key);
  if (is_new) o.rope_base = rope.number_or("rope_theta", 1, 1e12, o.rope_base);
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.text_or(type_key, "default");
  if (type == "default") return;
  if (type != "llama3" && type != "linear") rope.fail(type_key, "default, linear or llama3");
  o.rope_scaling = type;
  o.rope_factor = rope.number("factor", 1, 1e6);
  if (type == "linear") return;
  o.rope_low_freq_factor = rope.number("low_freq_factor", 1e-6, 1e6);
  o.rope_high_freq_factor = rope.number("high_freq_factor", 1e-6, 1e6);
  o.rope_original_length = rope.integer("original_max_position_embeddings", 1, 1'000'000'000);
}

// Things of other models of the same type that would change the results.
void refuse_unsupported(const ConfigObject& config, bool is_qwen) {
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

// Longest context, which our models do not limit. Readers use it for their caches only; for
// stretched positions it follows from the stretch.
int64_t context_length(const ModelOptions& o) {
  constexpr int64_t kUsual = 32768;
  const int64_t stretched = stretched_context(o);
  return stretched > 0 ? stretched : kUsual;
}

// ---- the family -------------------------------------------------------------------------------

class DecoderFamily : public Family {
 public:
  DecoderFamily() : Family(description_of<DecoderEntry>()) {}

  std::vector<Preset> presets() const override {
    std::vector<Preset> list = {
        stretched(
            llama_preset("llama3.1-8b", {128256, 4096, 14336, 32, 32, 8}, 1024, "Llama 3.1 8B"), 8),
        tied(stretched(
            llama_preset("llama3.2-1b", {128256, 2048, 8192, 16, 32, 8}, 1024, "Llama 3.2 1B"),
            32)),
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
        llama_preset("llama", {}, 1024, "Llama of the sizes given"),
        qwen_preset("qwen", {}, 1024, "Qwen 1.5 or 2.5 of the sizes given"),
    };
    for (Preset& preset : gemma_presets()) list.push_back(std::move(preset));
    return list;
  }

  // "meta-llama-3.1-8b" -> "llama3.1-8b"; "gemma-3-1b-it" -> "gemma-3-1b".
  std::string preset_of_hub_name(const std::string& name) const override {
    if (name.find("gemma") != std::string::npos && (name.ends_with("-it") || name.ends_with("-pt")))
      return name.substr(0, name.size() - 3);
    const std::string text = name.starts_with("meta-") ? name.substr(5) : name;
    return text.starts_with("llama-") ? "llama" + text.substr(6) : text;
  }

  std::string hub_name_of_preset(const std::string& preset) const override {
    static const std::map<std::string, std::string> names = {
        {"llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"},
        {"llama3.2-1b", "meta-llama/Llama-3.2-1B-Instruct"},
        {"gemma-2-2b", "google/gemma-2-2b"},
        {"gemma-2-9b", "google/gemma-2-9b"},
        {"gemma-3-1b", "google/gemma-3-1b-pt"},
        {"gemma-3-4b", "google/gemma-3-4b-pt"},
        {"vaultgemma-1b", "google/vaultgemma-1b"},
        {"qwen1.5-1.8b", "Qwen/Qwen1.5-1.8B"},
        {"qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B"}};
    const auto found = names.find(preset);
    return found == names.end() ? "" : found->second;
  }

  void complete(ModelOptions& o, const ModelOptions& asked) const override {
    if (o.rope_scaling == "none") {
      o.rope_factor = asked.rope_factor;  // not that of a preset whose scaling was turned off
    } else if (o.rope_scaling == "llama3") {
      // The published values of Llama 3.1, which 3.2 changes in the factor alone.
      if (o.rope_factor == 0) o.rope_factor = 8;
      if (o.rope_low_freq_factor == 0) o.rope_low_freq_factor = 1;
      if (o.rope_high_freq_factor == 0) o.rope_high_freq_factor = 4;
      if (o.rope_original_length == 0) o.rope_original_length = 8192;
    }
    if (o.last_block == "auto") o.last_block = o.task == "classify" ? "scored" : "all";
    complete_head_dim(o, 2);  // rotary positions turn pairs
    if (o.attention_scalar == 0 && block_parts(o.block_style).gemma)
      o.attention_scalar = static_cast<double>(o.head_dim);
  }

  std::unique_ptr<Model> build(const ModelOptions& o) const override {
    return std::make_unique<Decoder>(o);
  }

  Batch synthetic_batch(const ModelOptions& o, int64_t batch_size, int64_t length,
                        BatchDraws& draws) const override {
    Batch batch;
    batch.input_ids = draws.ids(o.vocab_size, {batch_size, length});
    batch.attention_mask =
        at::ones({batch_size, length}, at::TensorOptions().dtype(at::kBool).device(draws.device()));
    if (o.task == "classify") {
      batch.labels = draws.ids(o.num_labels, {batch_size});
      return batch;
    }
    // Next-token labels: shifted left, the last position has none.
    batch.labels = at::full_like(batch.input_ids, -100);
    batch.labels.slice(1, 0, length - 1).copy_(batch.input_ids.slice(1, 1));
    return batch;
  }

  int64_t batch_bytes(const ModelOptions& o, int64_t batch_size, int64_t length) const override {
    const int64_t labels = o.task == "lm" ? length : 1;
    return batch_size * (length * (8 + 1) + labels * 8);  // ids, mask, labels
  }

  double flops_per_token(const ModelOptions& o, int64_t tokens) const override {
    return decoder_flops_per_token(o, tokens);
  }
  ActivationBytes activation_bytes(const ModelOptions& o, const CostDtypes& f,
                                   int64_t T) const override {
    return decoder_activation_bytes(o, f, T);
  }

  // Qwen 1.5 and 2.5 both call themselves qwen2.
  std::vector<std::string> config_types() const override {
    return {"llama", "qwen2", "gemma2", "gemma3", "gemma3_text", "vaultgemma"};
  }

  ModelOptions read_config(const ConfigObject& config) const override {
    const std::string type = config.text_or("model_type", "");
    if (type.find("gemma") != std::string::npos) return read_gemma_config(config);
    const bool is_qwen = type == "qwen2";
    refuse_unsupported(config, is_qwen);
    ModelOptions o;
    o.model = is_qwen ? "qwen" : "llama";
    o.block_style = "llama";
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
    return o;
  }

  Json write_config(const ModelOptions& o) const override {
    if (block_parts(o.block_style).gemma) return write_gemma_config(o);
    // The two types differ in these biases alone.
    const bool is_qwen = o.qkv_bias == "yes";
    const bool classify = o.task == "classify";
    const std::string architecture = is_qwen ? "Qwen2" : "Llama";
    Json config =
        shared_config(o, architecture + (classify ? "ForSequenceClassification" : "ForCausalLM"),
                      is_qwen ? "qwen2" : "llama");
    config["hidden_act"] = "silu";
    config["max_position_embeddings"] = context_length(o);
    if (o.rope_scaling == "llama3") {
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", o.rope_factor},
                                {"low_freq_factor", o.rope_low_freq_factor},
                                {"high_freq_factor", o.rope_high_freq_factor},
                                {"original_max_position_embeddings", o.rope_original_length}};
    }
    if (is_qwen) {
      config["use_sliding_window"] = false;
    } else {
      config["attention_bias"] = false;
      config["mlp_bias"] = false;
    }
    if (o.rope_scaling == "linear")
      config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", o.rope_factor}};
    if (classify) write_labels(o, config);
    return config;
  }

  // Folders of models that see images as well keep the text part under one of two prefixes.
  WeightNames weight_names() const override {
    return {"model.", {"score.weight"}, {"language_model.model.", "model.language_model."}};
  }

  void shrink(ModelOptions& o) const override {
    o.hidden_dim = 24;
    o.intermediate_dim = 38;
    o.vocab_size = 29;
    o.head_dim = 6;
    if (o.attention_window > 0) o.attention_window = 3;
  }

  std::string frozen_example() const override { return "*.layers.0.*,model.norm.weight"; }
  std::string trained_example() const override { return "*norm.weight"; }
};

}  // namespace

std::unique_ptr<Family> DecoderEntry::make() {
  return std::make_unique<DecoderFamily>();
}

}  // namespace moonshard::models
