// Models by name: a preset is a family and its sizes. A new model of a known family is one line in
// registry.cpp; a new family is one file pair and one row of its table of families.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/models/model.h"

namespace moonshard::models {

enum class Family { Linear, Decoder, Dit };

struct Preset {
  Family family;
  ModelOptions sizes;
  int64_t batch_size;  ///< what an experiment takes when it names none
  int64_t seq_length;  ///< tokens of a sample: text, or patches of an image; 1 for vectors
  std::string doc;
};

/// Every preset that has sizes.
const std::vector<Preset>& presets();

/// The preset of that name, in any case. Besides presets() it knows the families "llama", "qwen"
/// and "dit", whose sizes the caller gives (from a config.json), and names on the Hugging Face hub:
/// "meta-llama/Llama-3.1-8B-Instruct" is llama3.1-8b. Throws UsageError for an unknown one, with
/// the nearest.
const Preset& find_preset(const std::string& name);

/// Whether find_preset would find it.
bool knows_model(const std::string& name);

/// Fills what is 0 or "auto" from the preset, and names the preset by its own name. Throws
/// UsageError when the family needs a size that neither has.
ModelOptions resolve_model_options(const ModelOptions& options);

/// Tokens of one sample: an image's patches for denoise, 1 for regress, else seq_length. Takes
/// resolved options.
int64_t tokens_per_sample(const ModelOptions& resolved, int64_t seq_length);

/// Builds a model with random weights from its seed and freezes what `frozen` names; on device
/// "meta" only its shapes. `weights` is the caller's to load.
std::unique_ptr<Model> make_model(const ModelOptions& options);

}  // namespace moonshard::models
