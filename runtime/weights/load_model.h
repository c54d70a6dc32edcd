// Loads weights into models and saves them, by the names of parameters.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/models/model.h"

namespace moonshard::weights {

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

/// Writes config.json and the weights into a folder, which is made when it is not there. Returns
/// the names of the files of weights.
std::vector<std::string> save_model(const models::Model& model, const std::filesystem::path& folder,
                                    int64_t max_shard_bytes = kDefaultShardBytes);

}  // namespace moonshard::weights
