#include "runtime/models/model_cost.h"

#include <algorithm>
#include <set>

#include <c10/core/ScalarType.h>

#include "runtime/core/device.h"
#include "runtime/models/registry.h"

namespace moonshard::models {
namespace {

CostDtypes dtypes_of(const ModelOptions& o, LayerForm form) {
  const int64_t s = static_cast<int64_t>(c10::elementSize(dtype_from_name(o.param_dtype)));
  return {s, std::max<int64_t>(s, 4), form == LayerForm::Fused};
}

struct ParameterSizes {
  int64_t block_gradient_bytes = 0;  ///< of one block
  int64_t gradient_bytes = 0;
  int64_t head_gradient_bytes = 0;  ///< of ActivationBytes::head_layer, tied or not
  int64_t largest = 0;              ///< elements of the largest weight
};

int64_t gradient_bytes_of(const Parameter& parameter) {
  if (!parameter.trainable) return 0;
  return parameter.value.numel() *
         std::max<int64_t>(4, static_cast<int64_t>(parameter.value.element_size()));
}

ParameterSizes measure(const Model& model, const std::string& head_layer) {
  ParameterSizes sizes;
  for (const auto& parameter : model.parameters()) {
    sizes.largest = std::max(sizes.largest, parameter->value.numel());
    sizes.gradient_bytes += gradient_bytes_of(*parameter);
  }
  std::set<const Parameter*> first_block;
  for (const auto& layer : model.layers()) {
    if (layer->name == head_layer) sizes.head_gradient_bytes = gradient_bytes_of(*layer->weight);
    if (layer->block != 0) continue;
    first_block.insert(layer->weight);
    if (layer->bias != nullptr) first_block.insert(layer->bias);
  }
  for (const Parameter* parameter : first_block)
    sizes.block_gradient_bytes += gradient_bytes_of(*parameter);
  return sizes;
}

// What adapters keep of a token in one block: the row between their two layers.
int64_t adapter_bytes(const Model& model, const CostDtypes& dtypes) {
  int64_t rows = 0;
  for (const auto& layer : model.layers())
    rows += layer->block == 0 && layer->lora_up != nullptr ? 1 : 0;
  return rows * model.options().lora_rank * dtypes.s;
}

// By families' formulas every weight is trained and takes 6 operations a token. A frozen one has no
// gradient of its own (4); adapters come on top.
double flops_correction(const Model& model, int64_t tokens) {
  double sum = 0;
  for (const auto& layer : model.layers()) {
    if (layer->kind != kinds::kLinear) continue;
    const double uses = static_cast<double>(layer->weight->value.numel()) /
                        static_cast<double>(layer->one_position ? tokens : 1);
    if (is_adapter_name(layer->weight->name)) sum += 6 * uses;
    if (!layer->weight->trainable) sum -= 2 * uses;
  }
  return sum;
}

bool is_recomputed(const ModelOptions& o, int64_t block) {
  return o.checkpointing != "none" && block % o.checkpoint_every == 0;
}

// Of a block, per token, until its backward.
int64_t kept_of_block(const ModelOptions& o, const ActivationBytes& a, int64_t block) {
  if (!is_recomputed(o, block)) return a.block;
  const bool keeps_attention = o.checkpointing == "keep_attention" && o.attention == "flash";
  return a.block_input + (keeps_attention ? a.attention_output : 0);
}

int64_t blocks_alike(const ModelOptions& o, const ActivationBytes& a) {
  return o.num_layers - (a.last_block ? 1 : 0);
}

int64_t kept_of_last(const ActivationBytes& a, int64_t samples, int64_t rows) {
  return a.last_block ? a.last_block->kept_bytes(samples, rows) : 0;
}

// The batch and what is kept of the forward pass when backward begins.
int64_t kept_bytes(const ModelOptions& o, const ActivationBytes& a, int64_t samples, int64_t rows) {
  int64_t kept = rows * (a.batch + a.outside) + a.shared + kept_of_last(a, samples, rows);
  for (int64_t i = 0; i < blocks_alike(o, a); ++i) kept += rows * kept_of_block(o, a, i);
  return kept;
}

// Follows the backward pass from the head to the first block and takes the most that lives at once:
// the weights, what is still kept, the gradients so far, and what the layer at work needs.
int64_t peak_of(const ModelOptions& o, const ActivationBytes& a, int64_t samples, int64_t rows,
                int64_t parameter_bytes, const ParameterSizes& sizes) {
  int64_t kept = kept_bytes(o, a, samples, rows);
  int64_t peak = kept + rows * a.head_working + a.chunk + sizes.head_gradient_bytes;
  kept -= rows * a.outside;
  // The head's weights are not in a block; where the others are (embeddings), their gradients come
  // last. Counting all of them here errs by the embeddings alone.
  int64_t gradients = sizes.gradient_bytes - o.num_layers * sizes.block_gradient_bytes;
  if (a.last_block) {
    gradients += sizes.block_gradient_bytes;
    const LastBlockBytes& last = *a.last_block;
    const int64_t working = std::max(last.of_attention, last.of_norm - last.gone);
    peak = std::max(peak, kept + gradients + rows * working);
    kept -= kept_of_last(a, samples, rows);
  }
  for (int64_t i = blocks_alike(o, a) - 1; i >= 0; --i) {
    const int64_t again = is_recomputed(o, i) ? a.block : 0;
    gradients += sizes.block_gradient_bytes;
    peak = std::max(peak, kept + gradients + rows * (again + a.block_working));
    kept -= rows * kept_of_block(o, a, i);
  }
  return parameter_bytes + peak;
}

}  // namespace

LayerForm layer_form(const ModelOptions& options) {
  const std::string& dtype = options.param_dtype == "auto" ? options.dtype : options.param_dtype;
  const bool known = dtype == "float32" || dtype == "bfloat16";
  return known && options.device.rfind("cuda", 0) == 0 ? LayerForm::Fused : LayerForm::Plain;
}

ModelCost model_cost(const ModelOptions& options, int64_t batch_size, int64_t seq_length,
                     LayerForm form) {
  ModelOptions shapes = options;
  shapes.device = "meta";
  const auto model = make_model(shapes);
  const ModelOptions& o = model->options();
  const Family& family = family_of(o);
  const int64_t tokens = family.tokens_per_sample(o, seq_length), rows = batch_size * tokens;
  const CostDtypes dtypes = dtypes_of(o, form);
  ActivationBytes a = family.activation_bytes(o, dtypes, tokens);
  a.block += adapter_bytes(*model, dtypes);
  const ParameterSizes sizes = measure(*model, a.head_layer);

  ModelCost cost;
  cost.num_parameters = model->num_parameters();
  cost.flops_per_token = family.flops_per_token(o, tokens) + flops_correction(*model, tokens);
  cost.parameter_bytes = model->parameter_bytes();
  cost.gradient_bytes = sizes.gradient_bytes;
  cost.activation_bytes = kept_bytes(o, a, batch_size, rows);
  cost.peak_bytes = peak_of(o, a, batch_size, rows, cost.parameter_bytes, sizes);
  // Weights kept in another dtype than that of the computation: one cast weight at a time.
  if (o.param_dtype != o.dtype) cost.peak_bytes += dtypes.s * sizes.largest;
  return cost;
}

}  // namespace moonshard::models
