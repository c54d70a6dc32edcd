// Comparisons of tensors.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include <ATen/ATen.h>

namespace moonshard {

/// Norm of the difference over the norm of what is expected, in float64.
inline double relative_difference(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor wide = want.to(at::kDouble);
  return ((got.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

/// The same of tensors by name, all of them together.
inline double relative_difference(const std::map<std::string, at::Tensor>& got,
                                  const std::map<std::string, at::Tensor>& want) {
  double difference = 0, size = 0;
  for (const auto& [name, tensor] : want) {
    difference += (got.at(name) - tensor).to(at::kDouble).square().sum().item<double>();
    size += tensor.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(difference / size);
}

}  // namespace moonshard
