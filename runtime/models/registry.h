// Models by name: a preset is a family's builder and its sizes. A new model is one file pair and
// one line here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/models/model.h"

namespace moonshard::models {

struct Preset {
  ModelOptions sizes;
  int64_t batch_size;  ///< what an experiment takes when it names none
  int64_t seq_length;
  std::string doc;
  std::unique_ptr<Model> (*build)(const ModelOptions&);
};

const std::vector<Preset>& presets();

/// The preset of that name. Throws UsageError for an unknown one, with the nearest.
const Preset& find_preset(const std::string& name);

/// Fills what is 0 or "auto" from the preset.
ModelOptions resolve_model_options(const ModelOptions& options);

/// Builds a model with random weights from its seed; on device "meta" only its shapes.
std::unique_ptr<Model> make_model(const ModelOptions& options);

}  // namespace moonshard::models
