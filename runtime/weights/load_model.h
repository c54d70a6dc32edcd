// Loads weights into models and saves them, by the names of parameters.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/models/model.h"
#include "runtime/models/model_options.h"

namespace moonshard::weights {

class WeightSource;

/// Shards as large as other libraries make them.
inline constexpr int64_t kDefaultShardBytes = 5'000'000'000;

struct LoadReport {
  std::vector<std::string> loaded;       ///< parameters filled from the file
  std::vector<std::string> initialised;  ///< parameters that keep their random initialisation
  std::vector<std::string> unused;       ///< tensors of the file that the model has no use for
};

/// Fills every parameter from a file or folder (open_weights), converted to the model's dtype and
/// device. Takes a checkpoint with or without the prefix "model.". Two differences are usual and
/// allowed: a language model's file has no head "score" for a classifier, and a model
/// with tied embeddings has no separate "lm_head". Any other missing name, another shape, or
/// a dtype that is not floating point are errors; they are found before the model is changed.
LoadReport load_weights(models::Model& model, const std::filesystem::path& path);

/// The same for a model whose parameters have no values yet (ModelOptions::deferred): checks now;
/// a wrapper that places a part of a parameter then reads just that part.
LoadReport defer_weights(models::Model& model, const std::filesystem::path& path);

/// Builds the model that `options` describe (options_from_config, changed as wished) and fills it.
/// Its options then name the path as `weights`.
std::unique_ptr<models::Model> load_model(models::ModelOptions options,
                                          const std::filesystem::path& path,
                                          LoadReport* report = nullptr);

/// The tensor that each parameter is filled from, by the parameter's name; those that the files
/// lack are left out. Throws where load_weights would.
std::map<std::string, std::string> tensors_of_parameters(const models::Model& model,
                                                         const WeightSource& source);

/// Throws UsageError for a parameter that is spread over ranks; `what` wants it whole.
void check_is_whole(const models::Model& model, const models::Parameter& parameter,
                    const char* what);

/// Writes config.json and the weights into a folder, which is made when it is not there. Returns
/// the names of the files of weights.
std::vector<std::string> save_model(const models::Model& model, const std::filesystem::path& folder,
                                    int64_t max_shard_bytes = kDefaultShardBytes);

// The one way to make a model: a preset with random weights, a preset with weights from a file, or
// a Hugging Face folder.

/// Options with every size filled in. When `model` is a folder with a config.json, that file gives
/// the family and the sizes, the folder becomes `weights`, and the caller's options take
/// precedence.
models::ModelOptions resolve_model(const models::ModelOptions& options);

/// A seed that nobody gave becomes the job's.
void draw_missing_seed(models::ModelOptions& options);

/// Builds resolve_model's model; loads `weights` when it is set.
std::unique_ptr<models::Model> make_model(const models::ModelOptions& options);

// config.json of Hugging Face folders: what a model is, without its weights. Each family reads and
// writes its own values of model_type (models/family.h). A config value that our models do
// not support is an error, never a silent difference.

/// Options to build the model with: its family as `model`, every size, and the task that the
/// checkpoint was trained for ("auto" when the file does not say). Throws UsageError when there is
/// no such folder or it needs what is not supported, IoError when the file is damaged; both name
/// file and key.
models::ModelOptions options_from_config(const std::filesystem::path& folder);

/// Writes config.json for resolved options, so that transformers and options_from_config open the
/// folder. The folder must exist.
void write_config(const std::filesystem::path& folder, const models::ModelOptions& options);

}  // namespace moonshard::weights
