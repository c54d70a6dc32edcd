// What every fused elementwise operation requires of its tensors before it uses its kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/common/choice.h"
#include "kernels/common/number_format.h"

namespace moonshard::kernels {

inline bool has_number_format(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16;
}

inline NumberFormat number_format(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? NumberFormat::Float32 : NumberFormat::Bfloat16;
}

/// kernel_runs for a tensor that is float32 or bfloat16. Float64 has no kernel and falls back
/// silently: it is for checking, not for speed. Half has none either, and that is logged.
inline bool fused_kernel_runs(const char* operation, const at::Tensor& tensor) {
  if (!tensor.is_cuda() || tensor.scalar_type() == at::kDouble || tensor.numel() == 0) return false;
  if (!kernel_runs(operation, tensor)) return false;
  if (has_number_format(tensor)) return true;
  note_fallback(operation, std::string("format ") + c10::toString(tensor.scalar_type()));
  return false;
}

inline const void* pointer_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

inline void* mutable_pointer_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

/// Puts a reference's result where the kernel would: into `memory` when that is to be overwritten.
inline at::Tensor placed(const at::Tensor& result, const at::Tensor& memory, bool overwrite) {
  return overwrite ? memory.copy_(result) : result;
}

/// What references compute in: float64 for float64, else float32.
inline at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// A parameter [d] as a kernel sees it: rounded to the dtype of x, then wide.
inline at::Tensor rounded_parameter(const at::Tensor& parameter, const at::Tensor& x) {
  return parameter.to(x.scalar_type()).to(wide_type(x));
}

}  // namespace moonshard::kernels
