// The files that a LoRA run's frozen weights came from: a checkpoint need not repeat them, and says
// by their fingerprint which they are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/models/model.h"

namespace moonshard::weights {

struct BaseWeights {
  std::string path;  ///< file or folder, absolute
  /// SHA-256 over name, dtype, shape and the first and last 1024 numbers of every tensor that a
  /// frozen parameter came from. Other weights of the same model have another.
  std::string fingerprint;
  std::vector<std::string> parameters;  ///< frozen from the start, and in the files; sorted
};

/// Whether a model has adapters, and weights that came from files and have not been replaced by a
/// checkpoint's since.
bool has_base_weights(const models::Model& model);

/// Of such a model; none for others. Reads the files.
std::optional<BaseWeights> base_weights(const models::Model& model);

}  // namespace moonshard::weights
