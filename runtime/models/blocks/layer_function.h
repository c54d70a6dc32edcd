// What autograd functions of parametered layers share. For the sources of this folder.
#pragma once

#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/models/blocks/param_ops.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/timeline.h"

namespace moonshard::models::layer_function {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The layer outlives the graph (the model owns it), so the graph may hold its bare address.
inline void remember_layer(AutogradContext* context, ParamLayer* layer) {
  context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
}

/// Null where there was none: a norm without parameters.
inline ParamLayer* remembered_layer_or_null(AutogradContext* context) {
  return reinterpret_cast<ParamLayer*>(context->saved_data["layer"].toInt());
}

inline ParamLayer& remembered_layer(AutogradContext* context) {
  return *remembered_layer_or_null(context);
}

inline std::optional<at::Tensor> bias_of(const ParamLayer& layer, at::ScalarType type) {
  if (layer.bias == nullptr) return std::nullopt;
  const profile::OwnerScope cast(profile::Owner::CastParameters);
  return layer.bias->value.to(type);
}

inline at::ScalarType statistics_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// Frozen layers need no anchor: they stay in the graph only when their input does.
inline at::Tensor anchor_of(const ParamLayer& layer) {
  return layer.trainable() ? layer.seam->anchor : layer.seam->no_anchor;
}

// Of plain autograd: the parameter rounded to the compute dtype, kept in a wide type.
// The gradient passes the rounding unchanged, as it does in mixed precision, where it is never
// rounded either.
inline at::Tensor rounded(const Parameter& parameter, at::ScalarType type) {
  const at::Tensor& value = parameter.value;
  if (value.scalar_type() == type) return value;
  return value + (value.detach().to(type).to(value.scalar_type()) - value.detach());
}

// A layer as the rest of the model calls it: its parameters are in place while it runs. Inside of
// an autograd function the output does not show whether a backward will come: `in_graph` says it.
template <class Run>
at::Tensor with_parameters(const ParamLayer& layer, Run run, std::optional<bool> in_graph = {}) {
  const profile::TraceZone zone(layer.name);
  before_forward(layer);
  const at::Tensor output = run();
  after_forward(layer, in_graph.value_or(output.requires_grad()));
  return output;
}

}  // namespace moonshard::models::layer_function
