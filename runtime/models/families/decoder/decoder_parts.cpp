#include "runtime/models/families/decoder/decoder_parts.h"

namespace moonshard::models {
namespace {

// What transformers takes when a config leaves it out.
constexpr int64_t kDefaultLabels = 2;

}  // namespace

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
  return {o, 2, tokens, doc, sizes.width > 0, nullptr};
}

void read_task(const ConfigObject& config, ModelOptions& o) {
  if (config.has("id2label")) {
    if (!config.get("id2label").is_object() || config.get("id2label").empty())
      config.fail("id2label", "an object of numbers and labels");
    o.num_labels = static_cast<int64_t>(config.get("id2label").size());
  } else {
    o.num_labels = config.integer_or("num_labels", 1, 1'000'000, 0);
  }
  if (!config.has("architectures")) return;
  const nlohmann::json& list = config.get("architectures");
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

Json shared_config(const ModelOptions& o, const std::string& architecture, const char* type) {
  return {{"architectures", Json::array({architecture})},
          {"model_type", type},
          {"vocab_size", o.vocab_size},
          {"hidden_size", o.hidden_dim},
          {"intermediate_size", o.intermediate_dim},
          {"num_hidden_layers", o.num_layers},
          {"num_attention_heads", o.num_heads},
          {"num_key_value_heads", o.num_kv_heads},
          {"head_dim", o.head_dim},
          {"rms_norm_eps", o.norm_eps},
          {"rope_theta", o.rope_base},
          {"rope_scaling", nullptr},
          {"tie_word_embeddings", o.tie_embeddings == "yes"},
          {"pad_token_id", o.pad_token_id >= 0 ? Json(o.pad_token_id) : Json(nullptr)}};
}

void write_labels(const ModelOptions& o, Json& config) {
  Json to_label = Json::object(), to_id = Json::object();
  for (int64_t i = 0; i < o.num_labels; ++i) {
    to_label.emplace(std::to_string(i), fmt::format("LABEL_{}", i));
    to_id.emplace(fmt::format("LABEL_{}", i), i);
  }
  config["id2label"] = std::move(to_label);
  config["label2id"] = std::move(to_id);
}

}  // namespace moonshard::models
