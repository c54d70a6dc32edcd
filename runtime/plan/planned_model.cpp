#include "runtime/plan/planned_model.h"

#include <algorithm>
#include <set>

#include <c10/core/ScalarType.h>

#include "runtime/core/device.h"
#include "runtime/models/registry.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/sharding/unit.h"
#include "runtime/sharding/wrap_policy.h"

namespace moonshard::plan {
namespace {

PlannedLayer planned_layer(const models::ParamLayer& layer, bool is_shared) {
  const at::Tensor& weight = layer.weight->value;
  PlannedLayer planned;
  planned.name = layer.name;
  planned.kind = layer.kind;
  planned.weight = weight.numel();
  planned.bias = layer.bias != nullptr && layer.bias->trainable ? layer.bias->value.numel() : 0;
  planned.is_matrix = privacy::is_matrix(layer);
  planned.is_small =
      layer.kind == models::kinds::kRmsNorm || layer.kind == models::kinds::kLayerNorm;
  planned.in =
      planned.is_matrix ? weight.numel() / std::max<int64_t>(1, weight.size(0)) : weight.size(-1);
  planned.out = planned.is_matrix ? weight.size(0) : planned.in;
  planned.trained = layer.weight->trainable;
  planned.one_position = layer.one_position;
  planned.by_samples = layer.by_samples;
  planned.is_shared = is_shared;
  planned.is_adapter = models::is_adapter_name(layer.weight->name);
  planned.input = layer.same_input_as != nullptr ? layer.same_input_as->index : layer.index;
  return planned;
}

void count_readers(std::vector<PlannedLayer>& layers) {
  for (PlannedLayer& layer : layers)
    layer.readers = std::max<int64_t>(
        1, std::count_if(layers.begin(), layers.end(), [&](const PlannedLayer& other) {
          return other.trained && other.is_matrix && other.input == layer.input;
        }));
}

void find_adapters(std::vector<PlannedLayer>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    for (PlannedLayer& other : layers) {
      if (!other.is_adapter || !other.name.starts_with(layers[i].name + ".")) continue;
      other.beside = i;
      if (other.trained) layers[i].adapted += other.weight;
    }
  }
}

}  // namespace

PlannedModel::PlannedModel(const models::ModelOptions& options, int64_t seq_length, bool with_fused,
                           bool fixed_segments)
    : fused(with_fused),
      options_(options),
      seq_length_(seq_length),
      fixed_segments_(with_fused && fixed_segments) {
  models::ModelOptions shapes = options;
  shapes.device = "meta";
  model_ = models::make_model(shapes);
  options_ = model_->options();
  options_.device = options.device;
  const models::Family& family = models::family_of(options_);
  tokens = family.tokens_per_sample(options_, seq_length);
  has_last = options_.last_block == "scored" && options_.num_layers > 0;
  num_blocks = options_.num_layers - (has_last ? 1 : 0);
  num_parameters = model_->num_parameters();
  const at::ScalarType type = dtype_from_name(options_.dtype);
  const at::ScalarType compute = model_->seam().compute_type;
  value_bytes = static_cast<int64_t>(c10::elementSize(type));
  compute_bytes = static_cast<int64_t>(c10::elementSize(compute));
  sum_bytes = std::max<int64_t>(value_bytes, 4);
  splits = sharding::splits_master_weights(type, compute);

  std::map<const models::Parameter*, int> uses;
  for (const auto& layer : model_->layers()) ++uses[layer->weight];
  std::map<const models::Parameter*, size_t> first_use;
  bool seen_block = false;
  first_in_backward = num_stretches() - 1;
  for (const auto& layer : model_->layers()) {
    seen_block = seen_block || layer->block >= 0;
    stretch_of_.push_back(layer->block >= 0 ? static_cast<size_t>(layer->block) + 1
                          : seen_block      ? num_stretches() - 1
                                            : 0);
    if (layer->trainable()) first_in_backward = std::min(first_in_backward, stretch_of_.back());
    summed_at_.push_back(first_use.emplace(layer->weight, stretch_of_.back()).first->second);
  }
  shown_block = usual_block();
  for (size_t i = 0; i < stretch_of_.size(); ++i) {
    const models::ParamLayer& layer = *model_->layers()[i];
    const StretchKind kind = kind_of(stretch_of_[i]);
    if (kind == StretchKind::Block && layer.block != shown_block) continue;
    of(kind).push_back(planned_layer(layer, uses[layer.weight] > 1));
  }
  for (std::vector<PlannedLayer>* stretch : all()) {
    count_readers(*stretch);
    find_adapters(*stretch);
  }
  if (block.empty() && !has_last) num_blocks = 0;
  for (const auto& parameter : model_->parameters())
    if (parameter->trainable) num_trained += parameter->value.numel();

  const models::CostDtypes dtypes{compute_bytes, std::max<int64_t>(compute_bytes, 4), fused};
  kept = family.activation_bytes(options_, dtypes, tokens);
  // A second pass must see the same bits. A GPU's float32 attention has no kernel for that: scores
  // are then a matrix.
  models::ModelOptions twice = options_;
  if (fused && compute_bytes >= 4) twice.attention = "standard";
  kept_twice = family.activation_bytes(twice, dtypes, tokens);
  for (const auto& layer : model_->layers())
    adapter_bytes += layer->block == shown_block && layer->lora_up != nullptr
                         ? options_.lora_rank * compute_bytes
                         : 0;
  kept.block += adapter_bytes;
  kept_twice.block += adapter_bytes;
  models::ModelOptions costed = options_;
  costed.device = "cpu";
  flops_per_token = models::model_cost(costed, 1, seq_length).flops_per_token;
}

// Of the blocks that backward reaches, the first of those that are trained as most of them are.
int64_t PlannedModel::usual_block() const {
  const int64_t first = std::clamp<int64_t>(static_cast<int64_t>(first_in_backward) - 1, 0,
                                            std::max<int64_t>(0, num_blocks - 1));
  std::map<int64_t, std::string> trained;  // by block, a letter for each of its layers
  for (const auto& layer : model_->layers())
    if (layer->block >= first && layer->block < num_blocks)
      trained[layer->block] += layer->trainable() ? 't' : 'f';
  std::map<std::string, int64_t> count;
  int64_t most = 0;
  for (const auto& [block_index, pattern] : trained) most = std::max(most, ++count[pattern]);
  for (const auto& [block_index, pattern] : trained)
    if (count[pattern] == most) return block_index;
  return first;
}

PlannedModel::PlannedModel(const models::ModelOptions& options, int64_t seq_length,
                           const MachineProfile& machine)
    : PlannedModel(options, seq_length, machine.is_gpu, machine.fixed_segments) {}

PlannedModel::~PlannedModel() = default;

int64_t PlannedModel::blocks_in_backward() const {
  const int64_t before_them = std::max<int64_t>(0, static_cast<int64_t>(first_in_backward) - 1);
  return std::max<int64_t>(0, num_blocks - before_them);
}

int64_t PlannedModel::batch_bytes(int64_t batch_size) const {
  return models::family_of(options_).batch_bytes(options_, batch_size, seq_length_);
}

// Of a stretch's backward, what has run when this layer's gradient is there: as of its elements.
double PlannedModel::share_from(size_t stretch, size_t first_layer) const {
  double whole = 0, done = 0;
  for (const auto& layer : model_->layers()) {
    if (stretch_of_[layer->index] != stretch || layer->weight == nullptr) continue;
    const auto elements = static_cast<double>(layer->weight->value.numel());
    whole += elements;
    if (layer->index >= first_layer) done += elements;
  }
  return whole > 0 ? done / whole : 1;
}

const std::vector<PlannedUnit>& PlannedModel::units(const sharding::ShardingOptions& sharding,
                                                    int ranks) const {
  const bool parts = sharding.parallel == "fsdp";
  const int holders = parts ? sharding::ranks_of_a_copy(sharding, ranks) : 1;
  const std::string key =
      parts ? fmt::format("fsdp {} {} {} {} {} {} {} {}", sharding.wrap,
                          sharding.wrap == "size" ? sharding.min_num_params : 0, holders,
                          sharding.sharding, sharding.reshard_root, sharding.cpu_offload,
                          sharding.reduce_dtype, sharding.unit_policies)
            : fmt::format("{} {} {} {}", sharding.parallel, sharding.bucket_mb,
                          sharding.reduce_dtype, sharding.unit_policies);
  const std::lock_guard lock(mutex_);
  if (const auto known = units_.find(key); known != units_.end()) return known->second;
  std::vector<PlannedUnit> units;
  for (const sharding::UnitPlan& plan : plan_units(*model_, sharding)) {
    PlannedUnit unit;
    unit.is_root = plan.is_root;
    unit.reshards = plan.settings.reshard;
    unit.offloads = parts && plan.settings.offload;
    unit.narrow_sums = plan.settings.reduce_dtype == "bfloat16";
    unit.ranks = holders;
    const at::ScalarType compute = plan.settings.dtype == "auto"
                                       ? model_->seam().compute_type
                                       : dtype_from_name(plan.settings.dtype);
    unit.compute_bytes = static_cast<int64_t>(c10::elementSize(compute));
    unit.splits =
        parts && sharding::splits_master_weights(dtype_from_name(options_.dtype), compute);
    unit.in_compute_type = value_bytes == unit.compute_bytes || unit.splits;
    std::vector<models::Parameter*> trained, frozen;
    for (models::Parameter* parameter : plan.parameters) {
      (parameter->trainable ? trained : frozen).push_back(parameter);
      if (!parameter->trainable) continue;
      unit.trained += parameter->value.numel();
      ++unit.tensors;
      if (parameter->value.dim() == 1) ++unit.small;
    }
    if (!trained.empty()) unit.trained_shard = sharding::FlatLayout(trained, 0, holders).shard_size;
    if (!frozen.empty()) unit.frozen_shard = sharding::FlatLayout(frozen, 0, holders).shard_size;
    std::set<size_t> where;
    std::map<size_t, size_t> first_trained;  // by stretch
    for (const models::ParamLayer* layer : plan.layers) {
      where.insert(stretch_of_[layer->index]);
      if (!layer->trainable()) continue;
      first_trained.emplace(stretch_of_[layer->index], layer->index);
      const size_t sums = summed_at_[layer->index];
      unit.sums_end_at = unit.sums_end_at == kNoStretch ? sums : std::max(unit.sums_end_at, sums);
    }
    unit.stretches.assign(where.begin(), where.end());
    const auto reached = where.lower_bound(first_in_backward);
    unit.backward_ends_at = reached == where.end() ? kNoStretch : *reached;
    if (const auto first = first_trained.find(unit.backward_ends_at); first != first_trained.end())
      unit.ends_after = share_from(first->first, first->second);
    units.push_back(std::move(unit));
  }
  return units_[key] = std::move(units);
}

}  // namespace moonshard::plan
