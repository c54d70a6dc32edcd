// config.json of Hugging Face folders: what a model is, without its weights. Each family reads and
// writes its own values of model_type (models/family.h). A config value that our models do
// not support is an error, never a silent difference.
#pragma once

#include <filesystem>

#include "runtime/models/model_options.h"

namespace moonshard::weights {

/// Options to build the model with: its family as `model`, every size, and the task that the
/// checkpoint was trained for ("auto" when the file does not say). Throws UsageError when there is
/// no such folder or it needs what is not supported, IoError when the file is damaged; both name
/// file and key.
models::ModelOptions options_from_config(const std::filesystem::path& folder);

/// Writes config.json for resolved options, so that transformers and options_from_config open the
/// folder. The folder must exist.
void write_config(const std::filesystem::path& folder, const models::ModelOptions& options);

}  // namespace moonshard::weights
