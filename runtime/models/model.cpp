#include "runtime/models/model.h"

#include <ATen/ATen.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/core/device.h"

namespace moonshard::models {

const char* layer_kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::Linear:
      return "linear";
    case LayerKind::Embedding:
      return "embedding";
    case LayerKind::RmsNorm:
      return "rms_norm";
  }
  return "";
}

Model::Model(ModelOptions options) : options_(std::move(options)) {
  const auto device = resolve_device(options_.device);
  options_.device = device.is_cuda() ? "cuda" : device.is_meta() ? "meta" : "cpu";
  seam_.anchor =
      at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device)).set_requires_grad(true);
}

Parameter& Model::parameter(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& candidate : parameters_) {
    if (candidate->name == name) return *candidate;
    names.push_back(candidate->name);
  }
  throw UsageError(fmt::format("model '{}': expected a parameter's name, got '{}'; nearest is '{}'",
                               options_.model, name, nearest_name(name, names)));
}

int64_t Model::num_parameters() const {
  int64_t total = 0;
  for (const auto& parameter : parameters_) total += parameter->value.numel();
  return total;
}

int64_t Model::parameter_bytes() const {
  int64_t total = 0;
  for (const auto& parameter : parameters_)
    total += static_cast<int64_t>(parameter->value.nbytes());
  return total;
}

Parameter& Model::add_parameter(const std::string& name, at::IntArrayRef shape, double std,
                                double mean) {
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name;
  parameter->index = static_cast<uint32_t>(parameters_.size());
  // Made where and as what it is used: no float32 copy of a bfloat16 model, no host copy of a GPU
  // one.
  parameter->value = at::full(shape, mean,
                              at::TensorOptions()
                                  .dtype(dtype_from_name(options_.dtype))
                                  .device(resolve_device(options_.device)));
  if (std > 0 && !parameter->value.is_meta()) {
    kernels::add_counter_noise(parameter->value, std,
                               {static_cast<uint64_t>(options_.seed), 0,
                                parameter->index | kernels::kPurposeInitialWeights});
  }
  parameters_.push_back(std::move(parameter));
  return *parameters_.back();
}

ParamLayer& Model::add_layer(const std::string& name, LayerKind kind, Parameter& weight) {
  auto layer = std::make_unique<ParamLayer>();
  layer->name = name;
  layer->kind = kind;
  layer->weight = &weight;
  layer->seam = &seam_;
  layers_.push_back(std::move(layer));
  return *layers_.back();
}

ParamLayer& Model::add_linear(const std::string& name, int64_t in, int64_t out, bool bias,
                              double std) {
  ParamLayer& layer =
      add_layer(name, LayerKind::Linear, add_parameter(name + ".weight", {out, in}, std, 0));
  if (bias) layer.bias = &add_parameter(name + ".bias", {out}, 0, 0);
  return layer;
}

ParamLayer& Model::add_embedding(const std::string& name, int64_t rows, int64_t width, double std) {
  return add_layer(name, LayerKind::Embedding,
                   add_parameter(name + ".weight", {rows, width}, std, 0));
}

ParamLayer& Model::add_rms_norm(const std::string& name, int64_t width) {
  return add_layer(name, LayerKind::RmsNorm, add_parameter(name + ".weight", {width}, 0, 1));
}

}  // namespace moonshard::models
