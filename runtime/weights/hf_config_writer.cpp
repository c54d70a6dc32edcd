// The other half of hf_config.h: options to config.json.
#include <cmath>

#include "runtime/base/atomic_file.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/models/registry.h"
#include "runtime/weights/hf_config.h"

namespace moonshard::weights {
namespace {

using models::ModelOptions;

// Longest context, which our models do not limit. Readers use it for their caches only; for
// stretched positions it follows from the stretch.
int64_t context_length(const ModelOptions& o) {
  constexpr int64_t kUsual = 32768;
  if (o.rope_scaling != "llama3") return kUsual;
  return std::llround(static_cast<double>(o.rope_original_length) * o.rope_factor);
}

Json decoder_config(const ModelOptions& o) {
  // The two types differ in these biases alone.
  const bool is_qwen = o.qkv_bias == "yes";
  const bool classify = o.task == "classify";
  const std::string family = is_qwen ? "Qwen2" : "Llama";
  Json config = {
      {"architectures", {family + (classify ? "ForSequenceClassification" : "ForCausalLM")}},
      {"model_type", is_qwen ? "qwen2" : "llama"},
      {"vocab_size", o.vocab_size},
      {"hidden_size", o.hidden_dim},
      {"intermediate_size", o.intermediate_dim},
      {"num_hidden_layers", o.num_layers},
      {"num_attention_heads", o.num_heads},
      {"num_key_value_heads", o.num_kv_heads},
      {"head_dim", o.head_dim},
      {"hidden_act", "silu"},
      {"rms_norm_eps", o.norm_eps},
      {"rope_theta", o.rope_base},
      {"rope_scaling", nullptr},
      {"max_position_embeddings", context_length(o)},
      {"tie_word_embeddings", o.tie_embeddings == "yes"},
      {"pad_token_id", nullptr},
      {"torch_dtype", o.dtype},
  };
  if (o.rope_scaling == "llama3") {
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", o.rope_factor},
                              {"low_freq_factor", o.rope_low_freq_factor},
                              {"high_freq_factor", o.rope_high_freq_factor},
                              {"original_max_position_embeddings", o.rope_original_length}};
  }
  if (o.pad_token_id >= 0) config["pad_token_id"] = o.pad_token_id;
  if (is_qwen) {
    config["use_sliding_window"] = false;
  } else {
    config["attention_bias"] = false;
    config["mlp_bias"] = false;
  }
  if (classify) {
    Json to_label = Json::object(), to_id = Json::object();
    for (int64_t i = 0; i < o.num_labels; ++i) {
      to_label.emplace(std::to_string(i), fmt::format("LABEL_{}", i));
      to_id.emplace(fmt::format("LABEL_{}", i), i);
    }
    config["id2label"] = std::move(to_label);
    config["label2id"] = std::move(to_id);
  }
  return config;
}

Json dit_config(const ModelOptions& o) {
  return {{"model_type", "dit"},
          {"hidden_size", o.hidden_dim},
          {"intermediate_size", o.intermediate_dim},
          {"num_hidden_layers", o.num_layers},
          {"num_attention_heads", o.num_heads},
          {"image_size", o.image_size},
          {"patch_size", o.patch_size},
          {"in_channels", o.in_channels},
          {"num_classes", o.num_classes},
          {"positions", o.positions},
          {"norm_affine", o.norm_affine == "yes"},
          {"layer_norm_eps", o.norm_eps},
          {"label_dropout", o.label_dropout},
          {"torch_dtype", o.dtype}};
}

}  // namespace

void write_config(const std::filesystem::path& folder, const ModelOptions& options) {
  const ModelOptions o = models::resolve_model_options(options);
  Json config;
  switch (models::find_preset(o.model).family) {
    case models::Family::Decoder:
      config = decoder_config(o);
      break;
    case models::Family::Dit:
      config = dit_config(o);
      break;
    case models::Family::Linear:
      config = {{"model_type", "linear"},
                {"hidden_size", o.hidden_dim},
                {"num_hidden_layers", o.num_layers},
                {"torch_dtype", o.dtype}};
      break;
  }
  write_file_atomically(folder / "config.json", to_text(config));
}

}  // namespace moonshard::weights
