// What a model is made of. One flat struct for all families: a size that a family does not have is
// not used by it, and 0 means "as the preset says".
#pragma once

#include <cstdint>
#include <string>

#include "runtime/core/options.h"

namespace moonshard::models {

struct ModelOptions {
  std::string model = "llama3-tiny";
  std::string task = "auto";
  std::string device = "auto";
  std::string dtype = "float32";
  int64_t num_labels = 3;
  int64_t vocab_size = 0;
  int64_t hidden_dim = 0;
  int64_t intermediate_dim = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t seed = 0;
};

/// Adds the model's options to the schema of T, which derives from ModelOptions.
template <class T>
void add_model_options(OptionSchema& schema) {
  schema.text<T>("model", &T::model, "model preset; 'moonshard models' lists them").aliases = {
      "model_name"};
  schema.choice<T>(
      "task", &T::task, {"auto", "classify", "lm", "regress"},
      "what is learned: classify a sequence, predict the next token, regress a vector");
  schema.choice<T>("device", &T::device, {"auto", "cpu", "cuda"},
                   "where it runs; auto takes a GPU when there is one");
  schema
      .choice<T>("dtype", &T::dtype, {"float32", "float64", "bfloat16"},
                 "number format of weights and activations")
      .value_aliases = {{"fp32", "float32"}, {"fp64", "float64"}, {"bf16", "bfloat16"}};
  schema.integer<T>("num_labels", &T::num_labels, 1, 1e6, "classes of task classify");
  schema.integer<T>("vocab_size", &T::vocab_size, 0, 1e7,
                    "rows of the embedding; 0 takes the preset's");
  schema.integer<T>("hidden_dim", &T::hidden_dim, 0, 1e6, "model width; 0 takes the preset's");
  schema.integer<T>("intermediate_dim", &T::intermediate_dim, 0, 1e7,
                    "width inside the MLP; 0 takes the preset's");
  schema.integer<T>("num_layers", &T::num_layers, 0, 1e4, "blocks or layers; 0 takes the preset's");
  schema.integer<T>("num_heads", &T::num_heads, 0, 1e4, "attention heads; 0 takes the preset's");
  schema.integer<T>("num_kv_heads", &T::num_kv_heads, 0, 1e4,
                    "key and value heads (grouped-query attention); 0 takes the preset's");
  schema.integer<T>("seed", &T::seed, 0, 9007199254740992.0,
                    "start of every random number of the run");
}

}  // namespace moonshard::models
