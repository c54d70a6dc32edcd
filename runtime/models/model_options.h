// What a model is made of. One flat struct for all families: a size that a family does not have is
// not used by it, and 0 or "auto" means "as the preset says".
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/options.h"

namespace moonshard::models {

struct ModelOptions {
  std::string model = "llama3-tiny";
  std::string task = "auto";
  std::string weights;
  std::string device = "auto";
  std::string dtype = "float32";
  std::string param_dtype = "auto";
  std::string attention = "flash";
  std::string checkpointing = "none";
  int64_t checkpoint_every = 1;
  std::string frozen;
  int64_t num_labels = 0;
  int64_t vocab_size = 0;
  int64_t pad_token_id = -1;
  int64_t hidden_dim = 0;
  int64_t intermediate_dim = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  std::string tie_embeddings = "auto";
  std::string qkv_bias = "auto";
  double norm_eps = 0;
  double rope_base = 0;
  std::string rope_scaling = "auto";
  double rope_factor = 0;
  double rope_low_freq_factor = 0;
  double rope_high_freq_factor = 0;
  int64_t rope_original_length = 0;
  int64_t image_size = 0;
  int64_t patch_size = 0;
  int64_t in_channels = 0;
  int64_t num_classes = 0;
  std::string positions = "auto";
  std::string norm_affine = "auto";
  double label_dropout = -1;
  int64_t seed = 0;
  /// Not an option of users: parameters are shapes without numbers until somebody places them.
  bool deferred = false;
};

/// Adds the model's options to the schema of T, which derives from ModelOptions.
template <class T>
void add_model_options(OptionSchema& schema) {
  const std::map<std::string, std::string> short_formats = {
      {"fp32", "float32"}, {"fp64", "float64"}, {"bf16", "bfloat16"}};
  const auto yes_or_no = [&](const char* name, std::string T::*field, const char* doc) {
    schema.choice<T>(name, field, {"auto", "yes", "no"}, doc).value_aliases = {{"true", "yes"},
                                                                               {"false", "no"}};
  };
  schema.text<T>("model", &T::model, "model preset; 'moonshard models' lists them").aliases = {
      "model_name"};
  schema.choice<T>(
      "task", &T::task, {"auto", "classify", "lm", "denoise", "regress"},
      "what is learned: a sequence's class, the next token, an image's noise, a vector");
  schema.text<T>("weights", &T::weights,
                 "safetensors file or Hugging Face folder to start from; empty starts at random");
  schema.choice<T>("device", &T::device, {"auto", "cpu", "cuda"},
                   "where it runs; auto takes a GPU when there is one");
  schema
      .choice<T>("dtype", &T::dtype, {"float32", "float64", "bfloat16"},
                 "number format that weights are kept in")
      .value_aliases = short_formats;
  schema
      .choice<T>("param_dtype", &T::param_dtype, {"auto", "float32", "float64", "bfloat16"},
                 "number format of the computation; auto is dtype, bfloat16 gives mixed precision")
      .value_aliases = short_formats;
  schema.choice<T>("attention", &T::attention, {"flash", "standard"},
                   "fused attention, or scores as a matrix");
  schema.choice<T>("checkpointing", &T::checkpointing, {"none", "block"},
                   "keep a block's input only and run it again in backward");
  schema.integer<T>("checkpoint_every", &T::checkpoint_every, 1, 1e4,
                    "with checkpointing: every n-th block");
  schema.text<T>("frozen", &T::frozen,
                 "globs of parameters that are not trained, separated by commas");
  schema.integer<T>("num_labels", &T::num_labels, 0, 1e6,
                    "classes of task classify; 0 takes the preset's 3");
  schema.integer<T>("vocab_size", &T::vocab_size, 0, 1e7,
                    "rows of the embedding; 0 takes the preset's");
  schema.integer<T>("pad_token_id", &T::pad_token_id, -1, 1e7,
                    "id whose embedding is never trained; -1 means none");
  schema.integer<T>("hidden_dim", &T::hidden_dim, 0, 1e6, "model width; 0 takes the preset's");
  schema.integer<T>("intermediate_dim", &T::intermediate_dim, 0, 1e7,
                    "width inside the MLP; 0 takes the preset's");
  schema.integer<T>("num_layers", &T::num_layers, 0, 1e4, "blocks or layers; 0 takes the preset's");
  schema.integer<T>("num_heads", &T::num_heads, 0, 1e4, "attention heads; 0 takes the preset's");
  schema.integer<T>("num_kv_heads", &T::num_kv_heads, 0, 1e4,
                    "key and value heads (grouped-query attention); 0 takes the preset's");
  schema.integer<T>("head_dim", &T::head_dim, 0, 1e5,
                    "width of an attention head; 0 takes the preset's");
  yes_or_no("tie_embeddings", &T::tie_embeddings, "input and output embedding are one parameter");
  yes_or_no("qkv_bias", &T::qkv_bias, "query, key and value projections have a bias");
  schema.real<T>("norm_eps", &T::norm_eps, 0, 1, "added under a norm's root; 0 takes the preset's");
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
  schema.integer<T>("image_size", &T::image_size, 0, 1e5,
                    "pixels, or latent cells, along an image's side; 0 takes the preset's");
  schema.integer<T>("patch_size", &T::patch_size, 0, 1e4,
                    "side of a patch; tokens = (image_size / patch_size)^2");
  schema.integer<T>("in_channels", &T::in_channels, 0, 1e4, "3 for pixels, 4 for latents");
  schema.integer<T>("num_classes", &T::num_classes, 0, 1e7, "image classes; 0 takes the preset's");
  schema.choice<T>("positions", &T::positions, {"auto", "learned", "sincos"},
                   "positions of patches: a trained table, or fixed sines and cosines");
  yes_or_no("norm_affine", &T::norm_affine, "layer norms of a DiT have weight and bias");
  schema.real<T>("label_dropout", &T::label_dropout, -1, 1,
                 "share of labels replaced by the null class; -1 takes the preset's");
  schema.integer<T>("seed", &T::seed, 0, 9007199254740992.0,
                    "start of every random number of the run");
}

}  // namespace moonshard::models
