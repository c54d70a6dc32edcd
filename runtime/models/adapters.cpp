// Adapters of low rank (Hu et al., "LoRA", 2021) beside linear layers. They are layers of the model
// like all others: engines, wrappers and optimizers know nothing of them.
#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/globs.h"
#include "runtime/models/model.h"

namespace moonshard::models {
namespace {

bool is_target(const ParamLayer& layer, const std::string& target) {
  return matches_any({target}, layer.name) || layer.name.ends_with("." + target);
}

// The layers that get one, in order.
std::vector<ParamLayer*> adapted_layers(const Model& model) {
  const std::vector<std::string> targets = globs_of(model.options().lora_targets);
  std::vector<ParamLayer*> found;
  std::vector<std::string> unused = targets;
  for (const auto& layer : model.layers()) {
    if (layer->kind != kinds::kLinear) continue;
    bool is_meant = targets.empty() && layer->block >= 0;
    for (const std::string& target : targets) {
      if (!is_target(*layer, target)) continue;
      is_meant = true;
      std::erase(unused, target);
    }
    if (is_meant) found.push_back(layer.get());
  }
  const std::string& model_name = model.options().model;
  MS_CHECK(unused.empty(),
           "model '{}': option 'lora_targets': expected names of linear layers, got '{}', which "
           "matches none; their names look like '{}'",
           model_name, fmt::join(unused, ", "),
           model.layers().empty() ? "" : model.layers().back()->name);
  MS_CHECK(!found.empty(),
           "model '{}': option 'lora_rank': expected linear layers in blocks, got none; name "
           "layers in lora_targets",
           model_name);
  return found;
}

}  // namespace

void Model::add_adapters() {
  const int64_t rank = options_.lora_rank;
  if (rank == 0) return;
  for (ParamLayer* base : adapted_layers(*this)) {
    const auto matrix = base->weight->value.sizes();
    const auto add = [&](const char* name, at::IntArrayRef shape, double std) -> ParamLayer& {
      const std::string full_name = base->name + name;
      ParamLayer& layer =
          add_layer(full_name, kinds::kLinear, add_parameter(full_name + ".weight", shape, std, 0));
      layer.block = base->block;
      layer.one_position = base->one_position;
      return layer;
    };
    // The variance of PEFT's uniform start.
    const double std = 1 / std::sqrt(3 * static_cast<double>(matrix[1]));
    base->lora_down = &add(kAdapterDown, {rank, matrix[1]}, std);
    base->lora_up = &add(kAdapterUp, {matrix[0], rank}, 0);
    base->lora_scale = options_.lora_alpha / static_cast<double>(rank);
    base->lora_dropout = options_.lora_dropout;
    // Each has a mask of its own.
    if (base->same_input_as != nullptr && options_.lora_dropout == 0)
      base->lora_down->same_input_as = base->same_input_as->lora_down;
  }
}

bool is_adapter_name(const std::string& name) {
  const auto ends = [&](const char* part) { return name.ends_with(std::string(part) + ".weight"); };
  return ends(kAdapterDown) || ends(kAdapterUp);
}

}  // namespace moonshard::models
