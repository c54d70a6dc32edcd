// Options of decoder-only transformers. Torch-free. Those of Gemma come last.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/models/family_description.h"

namespace moonshard::models {

struct DecoderOptions {
  int64_t num_labels = 0;
  int64_t vocab_size = 0;
  int64_t pad_token_id = -1;
  int64_t num_kv_heads = 0;
  std::string tie_embeddings = "auto";
  std::string qkv_bias = "auto";
  int64_t head_chunk = 0;
  std::string last_block = "auto";
  double rope_base = 0;
  std::string rope_scaling = "auto";
  double rope_factor = 0;
  double rope_low_freq_factor = 0;
  double rope_high_freq_factor = 0;
  int64_t rope_original_length = 0;
  std::string block_style = "auto";
  double attention_scalar = 0;
  double attention_softcap = 0;
  double logit_softcap = 0;
  int64_t attention_window = 0;
  std::string attention_pattern;
  double rope_local_base = 0;
};

struct DecoderEntry {
  using Options = DecoderOptions;

  static FamilyDescription describe() {
    return {"decoder",
            {{"classify", "a sequence's class", {"input_ids", "labels"}},
             {"lm", "the next token", {"input_ids", "labels"}}},
            {"attention", "checkpointing", "checkpoint_every", "intermediate_dim", "num_heads",
             "head_dim", "norm_eps"},
            {"vocab_size", "hidden_dim", "intermediate_dim", "num_layers", "num_heads",
             "num_kv_heads"}};
  }
  static std::unique_ptr<Family> make();

  template <class T>
  static void add_options(OptionSchema& schema) {
    schema.integer<T>("num_labels", &T::num_labels, 0, 1e6,
                      "classes of task classify; 0 takes the preset's 3");
    schema.integer<T>("vocab_size", &T::vocab_size, 0, 1e7,
                      "rows of the embedding; 0 takes the preset's");
    schema.integer<T>("pad_token_id", &T::pad_token_id, -1, 1e7,
                      "id whose embedding is never trained; -1 means none");
    schema.integer<T>("num_kv_heads", &T::num_kv_heads, 0, 1e4,
                      "key and value heads (grouped-query attention); 0 takes the preset's");
    schema.yes_or_no<T>("tie_embeddings", &T::tie_embeddings,
                        "input and output embedding are one parameter");
    schema.yes_or_no<T>("qkv_bias", &T::qkv_bias, "query, key and value projections have a bias");
    schema.integer<T>("head_chunk", &T::head_chunk, 0, 1e9,
                      "lm: positions of a sample whose scores exist at a time, made again in "
                      "backward: less memory in long contexts; 0 means all, kept");
    schema.choice<T>("last_block", &T::last_block, {"auto", "scored", "all"},
                     "classify: tokens that the last block computes beside keys and values: the "
                     "one that is scored, or all, for the same numbers; auto: scored");
    schema.real<T>("rope_base", &T::rope_base, 0, 1e12,
                   "base of rotary positions; 0 takes the preset's");
    schema.choice<T>("rope_scaling", &T::rope_scaling, {"auto", "none", "llama3", "linear"},
                     "stretching of rotary frequencies for long contexts");
    schema.real<T>("rope_factor", &T::rope_factor, 0, 1e6,
                   "llama3 scaling: stretch of low frequencies; linear scaling: of all");
    schema.real<T>("rope_low_freq_factor", &T::rope_low_freq_factor, 0, 1e6,
                   "llama3 scaling: wavelengths above original/this are stretched");
    schema.real<T>("rope_high_freq_factor", &T::rope_high_freq_factor, 0, 1e6,
                   "llama3 scaling: wavelengths below original/this stay");
    schema.integer<T>("rope_original_length", &T::rope_original_length, 0, 1e9,
                      "llama3 scaling: context of the pre-training");
    schema.choice<T>("block_style", &T::block_style,
                     {"auto", "llama", "gemma2", "gemma3", "vaultgemma"},
                     "norms, activation and scaling of the embedding, as these models have them");
    schema.real<T>("attention_scalar", &T::attention_scalar, 0, 1e6,
                   "attention scores are divided by its root; 0 takes the preset's or head_dim");
    schema.real<T>("attention_softcap", &T::attention_softcap, -1, 1e6,
                   "attention scores s become c tanh(s / c); 0 takes the preset's, -1 means none");
    schema.real<T>("logit_softcap", &T::logit_softcap, -1, 1e6,
                   "the same for the scores of tokens; 0 takes the preset's, -1 means none");
    schema.integer<T>("attention_window", &T::attention_window, -1, 1e9,
                      "tokens that a local layer sees, its own included; 0 takes the preset's, -1 "
                      "means all");
    schema.text<T>("attention_pattern", &T::attention_pattern,
                   "which layers are local (l) or global (g), repeated: gemma2 has lg, gemma3 "
                   "lllllg; empty takes the preset's or g");
    schema.real<T>("rope_local_base", &T::rope_local_base, 0, 1e12,
                   "base of rotary positions in local layers; 0 takes the preset's or rope_base");
  }
};

}  // namespace moonshard::models
