// Models by name. A preset is a family and its sizes; families are listed in families.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/models/family.h"
#include "runtime/models/model.h"

namespace moonshard::models {

/// Every family, in the order of their registration.
const std::vector<std::unique_ptr<Family>>& families();

/// Adds a family to those of families.h, or removes one. Its tasks and options must be in
/// the schema. Not while other threads use models. Throws UsageError when a preset's
/// name is taken.
const Family& register_family(std::unique_ptr<Family> family);
void remove_family(const Family& family);

/// The family of the preset that `model` names; of another name, the first one with its task, for
/// models that are built by hand.
const Family& family_of(const ModelOptions& options);

/// The task of that name, or null.
const Task* find_task(const std::string& name);

/// Every preset that has sizes.
std::vector<Preset> presets();

/// The preset of that name, in any case. Besides presets() it knows those without sizes ("llama",
/// "qwen", "dit"), which the caller gives, and names on the Hugging Face hub:
/// "meta-llama/Llama-3.1-8B-Instruct" is llama3.1-8b. Throws UsageError for an unknown one, with
/// the nearest.
const Preset& find_preset(const std::string& name);

/// The other way round: a preset's name on the Hugging Face hub, as the profiling suites write it
/// into their results; the name itself where the hub has no such model.
std::string hub_name(const std::string& preset);

/// For errors about a name that is neither a preset nor a known one of the hub: which are known,
/// and the nearest.
std::string hub_suggestion(const std::string& name);

/// Whether find_preset would find it.
bool knows_model(const std::string& name);

/// Fills what is 0 or "auto" from the preset, and names the preset by its own name. Throws
/// UsageError when the family needs a size that neither has, and for an option that means nothing
/// to the family unless it has the value that resolved options have for it.
ModelOptions resolve_model_options(const ModelOptions& options);

/// Positions that the model computes for one sample: an image's patches for denoise, 1 for regress,
/// else seq_length. Takes resolved options.
int64_t tokens_per_sample(const ModelOptions& resolved, int64_t seq_length);

/// Builds a model with random weights from its seed and freezes what `frozen` names; on device
/// "meta" only its shapes. The caller loads `weights`.
std::unique_ptr<Model> make_model(const ModelOptions& options);

}  // namespace moonshard::models
