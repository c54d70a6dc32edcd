#include "runtime/sharding/wrap_policy.h"

#include <map>

#include "runtime/core/device.h"
#include "runtime/models/registry.h"

namespace moonshard::sharding {
namespace {

// Layer -> group, -1 for the root.
using Groups = std::vector<int64_t>;

Groups group_by_block(const models::Model& model, double smallest) {
  std::map<int64_t, double> sizes;
  for (const auto& layer : model.layers()) {
    if (layer->block < 0) continue;
    double& size = sizes[layer->block];
    size += static_cast<double>(layer->weight->value.numel());
    if (layer->bias != nullptr) size += static_cast<double>(layer->bias->value.numel());
  }
  // Blocks in order until there is enough for a unit; a rest that is too small goes to the root.
  std::map<int64_t, int64_t> group_of;
  std::vector<int64_t> open;
  int64_t next = 0;
  double sum = 0;
  for (const auto& [block, size] : sizes) {
    open.push_back(block);
    sum += size;
    if (sum < smallest) continue;
    for (const int64_t member : open) group_of[member] = next;
    ++next;
    open.clear();
    sum = 0;
  }
  Groups groups;
  for (const auto& layer : model.layers()) {
    const auto found = group_of.find(layer->block);
    groups.push_back(found == group_of.end() ? -1 : found->second);
  }
  return groups;
}

// Buckets of about equal bytes, starting at the last layer, whose gradients come first.
Groups group_by_bytes(const models::Model& model, double bytes) {
  const auto& layers = model.layers();
  Groups groups(layers.size(), 0);
  int64_t bucket = 0;
  double filled = 0;
  for (size_t i = layers.size(); i-- > 0;) {
    groups[i] = bucket;
    for (const models::Parameter* parameter : {layers[i]->weight, layers[i]->bias}) {
      if (parameter != nullptr && parameter->trainable)
        filled += static_cast<double>(parameter->value.numel()) * 4;
    }
    if (filled < bytes) continue;
    ++bucket;
    filled = 0;
  }
  // In the order of the forward pass, like all units.
  const int64_t first = groups[0];
  for (int64_t& group : groups) group = first - group;
  return groups;
}

}  // namespace

std::vector<UnitPlan> plan_units(const models::Model& model, const ShardingOptions& options) {
  const bool buckets = options.parallel == "ddp";
  const Groups groups = buckets ? group_by_bytes(model, options.bucket_mb * 1048576)
                        : options.wrap == "module" ? group_by_block(model, 1)
                        : options.wrap == "size"   ? group_by_block(model, options.min_num_params)
                                                   : Groups(model.layers().size(), -1);
  std::map<const models::Parameter*, int64_t> owner;
  std::map<int64_t, UnitPlan> units;  // the root is -1 and comes first
  bool is_reached = false;
  for (const auto& layer : model.layers()) {
    int64_t group = groups[layer->index];
    const auto known = owner.find(layer->weight);
    if (known != owner.end()) group = known->second;  // another use of a tied weight
    UnitPlan& unit = units[group];
    unit.is_root = group < 0;
    if (unit.name.empty()) {
      // "model.layers.3" of "model.layers.3.self_attn.q_proj"
      const size_t digits = layer->name.find_first_of("0123456789");
      const size_t end = layer->name.find('.', digits);
      unit.name = unit.is_root ? "root"
                  : buckets    ? fmt::format("bucket {}", group)
                               : layer->name.substr(0, end);
    }
    is_reached = is_reached || layer->trainable();
    unit.in_backward = unit.in_backward || is_reached;
    unit.layers.push_back(layer.get());
    for (models::Parameter* parameter : {layer->weight, layer->bias}) {
      if (parameter == nullptr || !owner.emplace(parameter, group).second) continue;
      unit.parameters.push_back(parameter);
    }
  }
  const std::vector<UnitPolicy> policies = parse_unit_policies(options.unit_policies);
  std::vector<UnitPlan> plan;
  std::vector<std::string> names;
  for (auto& [group, unit] : units) {
    unit.settings = settings_of(unit.name, unit.is_root, options, policies);
    names.push_back(unit.name);
    plan.push_back(std::move(unit));
  }
  check_globs(policies, names);
  return plan;
}

void check_units(const models::ModelOptions& model, const ShardingOptions& options) {
  if (options.unit_policies.empty()) return;
  models::ModelOptions shapes = model;
  shapes.device = "meta";
  plan_units(*models::make_model(shapes), options);
}

void set_compute_types(models::Model& model, const ShardingOptions& options) {
  for (const UnitPlan& unit : plan_units(model, options)) {
    if (unit.settings.dtype == "auto") continue;
    for (const models::ParamLayer* layer : unit.layers)
      model.layers()[layer->index]->own_type = dtype_from_name(unit.settings.dtype);
  }
}

}  // namespace moonshard::sharding
