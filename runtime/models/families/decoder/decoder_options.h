// Options of decoder-only transformers. Torch-free.
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
  double rope_base = 0;
  std::string rope_scaling = "auto";
  double rope_factor = 0;
  double rope_low_freq_factor = 0;
  double rope_high_freq_factor = 0;
  int64_t rope_original_length = 0;
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
    schema.real<T>("rope_base", &T::rope_base, 0, 1e12,
                   "base of rotary positions; 0 takes the preset's");
    schema.choice<T>("rope_scaling", &T::rope_scaling, {"auto", "none", "llama3"},
                     "stretching of rotary frequencies for long contexts");
    schema.real<T>("rope_factor", &T::rope_factor, 0, 1e6,
                   "llama3 scaling: stretch of low frequencies");
    schema.real<T>("rope_low_freq_factor", &T::rope_low_freq_factor, 0, 1e6,
                   "llama3 scaling: wavelengths above original/this are stretched");
    schema.real<T>("rope_high_freq_factor", &T::rope_high_freq_factor, 0, 1e6,
                   "llama3 scaling: wavelengths below original/this stay");
    schema.integer<T>("rope_original_length", &T::rope_original_length, 0, 1e9,
                      "llama3 scaling: context of the pre-training");
  }
};

}  // namespace moonshard::models
