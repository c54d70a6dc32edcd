// LoRA adapters as PEFT keeps them: a folder with adapter_config.json and
// adapter_model.safetensors, beside the folder of the model that they belong to.
#pragma once

#include <filesystem>
#include <memory>

#include "runtime/models/model.h"
#include "runtime/models/model_options.h"
#include "runtime/weights/load_model.h"

namespace moonshard::weights {

/// Whether the folder has an adapter, and no model.
bool is_adapter_folder(const std::filesystem::path& folder);

/// Where `model` names an adapter's folder, that becomes `adapter`, and `model` what the adapter
/// says it belongs to. The folder of `adapter` then sets rank, alpha, targets and what else is
/// trained, and the task where it is "auto". Throws UsageError for what is not supported here, and
/// when the caller's own options say otherwise.
void read_adapter_options(models::ModelOptions& options);

/// Fills the adapters, and what else the folder has, of a model of such options. Every tensor must
/// be used, and every adapter filled.
LoadReport load_adapter(models::Model& model, const std::filesystem::path& folder);
/// The same for a model whose parameters have no values yet, as defer_weights.
LoadReport defer_adapter(models::Model& model, const std::filesystem::path& folder);

/// Writes adapters and what else is trained; the weights that are frozen stay where they are. PEFT
/// opens the folder.
void save_adapter(const models::Model& model, const std::filesystem::path& folder);

/// The same model without adapters: each is added to the weight of its layer.
std::unique_ptr<models::Model> merged_model(const models::Model& model);

}  // namespace moonshard::weights
