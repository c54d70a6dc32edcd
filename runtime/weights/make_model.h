// The one way to make a model: a preset with random weights, a preset with weights from a file, or
// a Hugging Face folder.
#pragma once

#include <memory>

#include "runtime/models/model.h"

namespace moonshard::weights {

/// Options with every size filled in. When `model` is a folder with a config.json, that file gives
/// the family and the sizes, the folder becomes `weights`, and the caller's options take
/// precedence.
models::ModelOptions resolve_model(const models::ModelOptions& options);

/// Builds resolve_model's model; loads `weights` when it is set.
std::unique_ptr<models::Model> make_model(const models::ModelOptions& options);

}  // namespace moonshard::weights
