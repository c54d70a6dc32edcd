#include "runtime/models/model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/base/check.h"
#include "runtime/base/globs.h"
#include "runtime/core/device.h"
#include "runtime/models/batch_check.h"

namespace moonshard::models {

Model::Model(ModelOptions options) : options_(std::move(options)) {
  awaits_values_ = options_.deferred;
  const auto device = resolve_device(options_.device);
  options_.device = device.is_cuda() ? "cuda" : device.is_meta() ? "meta" : "cpu";
  seam_.anchor =
      at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device)).set_requires_grad(true);
  seam_.no_anchor = seam_.anchor.detach();
  seam_.compute_type =
      dtype_from_name(options_.param_dtype == "auto" ? options_.dtype : options_.param_dtype);
}

Batch Model::prepare(const Batch& batch, const RandomWords& words, int64_t step,
                     int64_t first) const {
  if (options_.lora_dropout <= 0) return batch;
  const at::Tensor drawn_B = at::empty({batch.size()}, at::kLong);
  for (int64_t i = 0; i < batch.size(); ++i)
    drawn_B.data_ptr<int64_t>()[i] = std::bit_cast<int64_t>(words.word(
        static_cast<uint32_t>(step), kernels::kPurposeData | 2u, static_cast<uint64_t>(first + i)));
  Batch prepared = batch;
  prepared.words = drawn_B.to(seam_.anchor.device());
  return prepared;
}

void Model::check(const Batch& batch) const {
  const BatchCheck fields(options_, batch);
  fields.expect(batch.inputs, "inputs", batch.inputs.defined() ? batch.inputs.dim() : 2,
                "[samples, width]");
  MS_CHECK(batch.inputs.dim() >= 2 && batch.inputs.size(-1) == options_.hidden_dim,
           "model '{}': batch field 'inputs': expected [samples, {}], got {}", options_.model,
           options_.hidden_dim, c10::str(batch.inputs.sizes()));
  fields.expect_like_inputs(batch.targets);
}

int64_t Model::count_tokens(const Batch& batch) const {
  return batch.input_ids.defined() ? batch.input_ids.numel() : batch.inputs.size(0);
}

int64_t Model::freeze(const std::string& glob) {
  MS_CHECK(seam_.keeper == nullptr,
           "model '{}': expected a model that no trainer has spread over ranks, got one that is; "
           "freeze before making the trainer",
           options_.model);
  int64_t count = 0;
  for (const auto& parameter : parameters_) {
    if (!matches_any({glob}, parameter->name)) continue;
    parameter->trainable = false;
    parameter->value = parameter->value.to(kept_type(*parameter));
    ++count;
  }
  MS_CHECK(count > 0,
           "model '{}': expected a glob that matches parameters, got '{}'; their names look like "
           "'{}'",
           options_.model, glob, parameters_.empty() ? "" : parameters_.front()->name);
  return count;
}

// What is never updated needs no more digits than the computation reads.
at::ScalarType Model::kept_type(const Parameter& parameter) const {
  const at::ScalarType kept = dtype_from_name(options_.dtype);
  const bool is_narrower = c10::elementSize(seam_.compute_type) < c10::elementSize(kept);
  return !parameter.trainable && is_narrower ? seam_.compute_type : kept;
}

bool Model::computes_in_double() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [](const auto& layer) { return layer->compute_type() == at::kDouble; });
}

bool Model::starts_trained(const std::string& name) const {
  if (matches_any(globs_of(options_.frozen), name)) return false;
  if (is_adapter_name(name)) return true;
  const bool all = options_.trained.empty() && options_.lora_rank == 0;
  return all || matches_any(globs_of(options_.trained), name);
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

bool Model::trains_block(size_t block) const {
  return std::ranges::any_of(layers_, [&](const auto& layer) {
    return layer->block == static_cast<int64_t>(block) && layer->trainable();
  });
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
  parameter->trainable = starts_trained(name);
  // Made where and as what it is used: no float32 copy of a bfloat16 model, no host copy of a GPU
  // one.
  parameter->value = at::empty(
      shape, at::TensorOptions()
                 .dtype(kept_type(*parameter))
                 .device(options_.deferred ? c10::kMeta : resolve_device(options_.device)));
  parameters_.push_back(std::move(parameter));
  starts_.push_back({std, mean});
  // Weights from a file overwrite what would be drawn here, and eight billion draws take a while.
  if (options_.weights.empty()) initialise(*parameters_.back());
  return *parameters_.back();
}

void Model::take_ranges_from(RangeSource source) {
  if (range_source_) {
    source = [first = std::move(source), then = std::move(range_source_)](
                 const Parameter& parameter, at::Tensor& range, int64_t begin) {
      return first(parameter, range, begin) || then(parameter, range, begin);
    };
  }
  range_source_ = std::move(source);
}

void Model::initialise(Parameter& parameter) const {
  if (parameter.value.is_meta()) return;
  at::Tensor all = parameter.value.flatten();
  initialise_range(parameter, all, 0);
}

void Model::initialise_range(const Parameter& parameter, at::Tensor& range, int64_t first) const {
  if (range_source_ && range_source_(parameter, range, first)) return;
  const Start& start = starts_[parameter.index];
  range.fill_(start.mean);
  if (start.std != 0) {
    kernels::add_counter_noise(range, start.std,
                               {static_cast<uint64_t>(options_.seed), 0,
                                parameter.index | kernels::kPurposeInitialWeights},
                               first);
  }
  if (start.zero_row < 0) return;
  const int64_t width = parameter.value.size(1);
  const int64_t from = std::max(start.zero_row * width, first);
  const int64_t to = std::min((start.zero_row + 1) * width, first + range.numel());
  if (from < to) range.narrow(0, from - first, to - from).zero_();
}

ParamLayer& Model::add_layer(const std::string& name, const char* kind, Parameter& weight) {
  auto layer = std::make_unique<ParamLayer>();
  layer->name = name;
  layer->kind = kind;
  layer->weight = &weight;
  layer->index = static_cast<uint32_t>(layers_.size());
  layer->block = block_;
  layer->seam = &seam_;
  layers_.push_back(std::move(layer));
  return *layers_.back();
}

ParamLayer& Model::add_linear(const std::string& name, int64_t in, int64_t out, bool bias,
                              double std) {
  ParamLayer& layer =
      add_layer(name, kinds::kLinear, add_parameter(name + ".weight", {out, in}, std, 0));
  if (bias) layer.bias = &add_parameter(name + ".bias", {out}, 0, 0);
  return layer;
}

ParamLayer& Model::add_embedding(const std::string& name, int64_t rows, int64_t width, double std,
                                 int64_t padding_id) {
  MS_CHECK(padding_id < rows, "model '{}': expected pad_token_id below vocab_size {}, got {}",
           options_.model, rows, padding_id);
  ParamLayer& layer =
      add_layer(name, kinds::kEmbedding, add_parameter(name + ".weight", {rows, width}, std, 0));
  layer.padding_id = padding_id;
  starts_[layer.weight->index].zero_row = padding_id;
  if (padding_id >= 0 && !layer.weight->value.is_meta()) layer.weight->value[padding_id].zero_();
  return layer;
}

ParamLayer& Model::add_rms_norm(const std::string& name, int64_t width) {
  return add_layer(name, kinds::kRmsNorm, add_parameter(name + ".weight", {width}, 0, 1));
}

ParamLayer& Model::add_layer_norm(const std::string& name, int64_t width) {
  ParamLayer& layer =
      add_layer(name, kinds::kLayerNorm, add_parameter(name + ".weight", {width}, 0, 1));
  layer.bias = &add_parameter(name + ".bias", {width}, 0, 0);
  return layer;
}

ParamLayer& Model::add_patch_embedding(const std::string& name, int64_t channels, int64_t patch,
                                       int64_t width, bool bias, double std) {
  ParamLayer& layer =
      add_layer(name, kinds::kPatchEmbedding,
                add_parameter(name + ".weight", {width, channels, patch, patch}, std, 0));
  if (bias) layer.bias = &add_parameter(name + ".bias", {width}, 0, 0);
  return layer;
}

ParamLayer& Model::add_position_table(const std::string& name, int64_t tokens, int64_t width,
                                      double std) {
  return add_layer(name, kinds::kPositionTable, add_parameter(name, {1, tokens, width}, std, 0));
}

ParamLayer& Model::add_tied_linear(const std::string& name, ParamLayer& owner) {
  return add_layer(name, kinds::kLinear, *owner.weight);
}

}  // namespace moonshard::models
