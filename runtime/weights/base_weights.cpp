#include "runtime/weights/base_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/check.h"
#include "runtime/base/sha256.h"
#include "runtime/weights/load_model.h"
#include "runtime/weights/weight_source.h"

namespace moonshard::weights {
namespace {

// Weights of another training differ everywhere: both ends of every tensor tell them apart, and
// take no longer to read than the headers.
void add_tensor(Sha256& sum, const WeightSource& source, const std::string& name) {
  const TensorEntry& entry = *source.find(name);
  sum.add(fmt::format("{} {} {}\n", name, dtype_label(entry.dtype, name), shape_text(entry.shape)));
  const int64_t count = c10::multiply_integers(entry.shape), part = std::min<int64_t>(count, 1024);
  for (const int64_t first : {int64_t{0}, count - part}) {
    const at::Tensor numbers = at::empty({part}, entry.dtype);
    if (part > 0) source.read_range(name, first, numbers);
    sum.add(numbers.const_data_ptr(), numbers.nbytes());
  }
}

}  // namespace

bool has_base_weights(const models::Model& model) {
  const models::ModelOptions& options = model.options();
  return options.lora_rank > 0 && !options.weights.empty() && model.has_values_of_files();
}

std::optional<BaseWeights> base_weights(const models::Model& model) {
  if (!has_base_weights(model)) return std::nullopt;
  const models::ModelOptions& options = model.options();
  const WeightSource source = open_weights(options.weights);
  const auto in_files = tensors_of_parameters(model, source);
  BaseWeights base;
  base.path = std::filesystem::absolute(options.weights).lexically_normal().string();
  Sha256 sum;
  for (const auto& [parameter, tensor] : in_files) {  // sorted by parameter
    if (model.parameter(parameter).trainable || model.starts_trained(parameter)) continue;
    add_tensor(sum, source, tensor);
    base.parameters.push_back(parameter);
  }
  base.fingerprint = sum.hex();
  return base;
}

}  // namespace moonshard::weights
