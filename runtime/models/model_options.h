// Options of a model: those that families share, and those of each family (families.h). 0 or
// "auto" means "as the preset says". Torch-free.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/ranges.h>

#include "runtime/base/options.h"
#include "runtime/models/families.h"

namespace moonshard::models {

struct ModelOptions : Families::Options {
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
  std::string trained;
  int64_t lora_rank = 0;
  double lora_alpha = 0;
  std::string lora_targets;
  double lora_dropout = -1;
  std::string adapter;
  int64_t hidden_dim = 0;
  int64_t intermediate_dim = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  double norm_eps = 0;
  int64_t seed = -1;
  bool seed_is_drawn = false;  ///< nobody gave it
  /// Not an option of users: parameters have shapes but no values until a wrapper places them.
  bool deferred = false;
};

/// Options that mean something to every family. The other shared ones are for families that name
/// them (FamilyDescription::options).
inline const std::vector<std::string>& options_of_every_family() {
  static const std::vector<std::string> names = {
      "model",   "task",       "weights",    "device",     "dtype",        "param_dtype",
      "frozen",  "trained",    "lora_rank",  "lora_alpha", "lora_targets", "lora_dropout",
      "adapter", "hidden_dim", "num_layers", "seed"};
  return names;
}

/// Adds the model's options to the schema of T, which derives from ModelOptions.
template <class T>
void add_model_options(OptionSchema& schema) {
  const std::map<std::string, std::string> short_dtypes = {
      {"fp32", "float32"}, {"fp64", "float64"}, {"bf16", "bfloat16"}};
  schema.text<T>("model", &T::model, "model preset; 'moonshard models' lists them").aliases = {
      "model_name"};
  std::vector<std::string> tasks = {"auto"}, learned;
  for (const Task& task : Families::tasks()) {
    tasks.push_back(task.name);
    learned.push_back(task.learned);
  }
  schema.choice<T>("task", &T::task, tasks, "").doc =
      fmt::format("what is learned: {}", fmt::join(learned, ", "));
  schema.text<T>("weights", &T::weights,
                 "safetensors file or Hugging Face folder to start from; empty starts at random");
  schema.choice<T>("device", &T::device, {"auto", "cpu", "cuda"},
                   "where it runs; auto takes a GPU when there is one");
  schema
      .choice<T>("dtype", &T::dtype, {"float32", "float64", "bfloat16"},
                 "dtype that weights are kept in")
      .value_aliases = short_dtypes;
  schema
      .choice<T>("param_dtype", &T::param_dtype, {"auto", "float32", "float64", "bfloat16"},
                 "compute dtype; auto is dtype, bfloat16 gives mixed precision")
      .value_aliases = short_dtypes;
  schema.choice<T>("attention", &T::attention, {"flash", "standard"},
                   "fused attention, or scores as a matrix");
  schema.choice<T>("checkpointing", &T::checkpointing, {"none", "block", "keep_attention"},
                   "block keeps a block's input only and runs it again in backward; keep_attention "
                   "keeps the output of its attention, too: faster in long contexts");
  schema.integer<T>("checkpoint_every", &T::checkpoint_every, 1, 1e4,
                    "with checkpointing: every n-th block");
  schema.text<T>("frozen", &T::frozen,
                 "globs of parameters that are not trained, separated by commas");
  schema.text<T>("trained", &T::trained,
                 "globs of the only parameters that are trained, separated by commas; empty: all "
                 "but frozen ones, and with lora_rank the adapters and a classifier's head");
  schema.integer<T>("lora_rank", &T::lora_rank, 0, 1e5,
                    "rank of LoRA adapters; 0 means none. The other weights are frozen");
  schema.real<T>("lora_alpha", &T::lora_alpha, 0, 1e9,
                 "adapters count alpha / rank times; 0 takes twice the rank");
  schema.text<T>("lora_targets", &T::lora_targets,
                 "names, last parts of names or globs of the linear layers with an adapter, "
                 "separated by commas; empty: all in blocks");
  schema.real<T>(
      "lora_dropout", &T::lora_dropout, -1, 0.999,
      "probability that a number of an adapter's input is dropped in a training step; -1 "
      "takes that of the adapter's folder, else 0");
  schema.text<T>("adapter", &T::adapter,
                 "folder of an adapter as PEFT saves it, to start from; it gives the lora options");
  schema.integer<T>("hidden_dim", &T::hidden_dim, 0, 1e6, "model width; 0 takes the preset's");
  schema.integer<T>("intermediate_dim", &T::intermediate_dim, 0, 1e7,
                    "width inside the MLP; 0 takes the preset's");
  schema.integer<T>("num_layers", &T::num_layers, 0, 1e4, "blocks or layers; 0 takes the preset's");
  schema.integer<T>("num_heads", &T::num_heads, 0, 1e4, "attention heads; 0 takes the preset's");
  schema.integer<T>("head_dim", &T::head_dim, 0, 1e5,
                    "width of an attention head; 0 takes the preset's");
  schema.real<T>("norm_eps", &T::norm_eps, 0, 1, "added under a norm's root; 0 takes the preset's");
  Families::add_options<T>(schema);
  schema.integer<T>("seed", &T::seed, -1, 9007199254740992.0,
                    "start of every random number of the run that is not secret; -1 draws one from "
                    "the operating system, the same for everything in a job");
}

/// The options of a model by themselves, for what is not a whole experiment.
const OptionSchema& model_schema();

}  // namespace moonshard::models
