// Makers of the built-in rules, and the small arithmetic that they share.
#pragma once

#include <memory>

#include <ATen/ATen.h>

#include "kernels/position_lengths/position_lengths.h"
#include "runtime/privacy/layer_rules.h"

namespace moonshard::privacy {

std::shared_ptr<const LayerRule> make_linear_rule();  ///< linear and patch_embedding
std::shared_ptr<const LayerRule> make_embedding_rule();
std::shared_ptr<const LayerRule> make_scale_rule();  ///< rms_norm and layer_norm
std::shared_ptr<const LayerRule> make_table_rule();  ///< position_table

/// A product with a matrix: linear layers, and patches, whose weight is one when it is flattened.
inline bool is_matrix(const models::ParamLayer& layer) {
  return layer.kind == models::kinds::kLinear || layer.kind == models::kinds::kPatchEmbedding;
}

inline bool has_trained_bias(const models::ParamLayer& layer) {
  return layer.bias != nullptr && layer.bias->trainable;
}

inline at::Tensor at_least_float(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

inline at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// [B, …, d] -> [B, T, d]; a 2-D input has one position.
inline at::Tensor as_positions(const at::Tensor& x) {
  return x.reshape({x.size(0),
                    x.dim() > 2 ? x.numel() / std::max<int64_t>(1, x.size(0) * x.size(-1)) : 1,
                    x.size(-1)});
}

/// x [n, …] by row factors [n]. Rows of factor 0 become 0 even where they are not finite.
inline at::Tensor scaled_rows(const at::Tensor& x, const at::Tensor& factors) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  const at::Tensor column = factors.to(x.scalar_type()).view(shape), dropped = column.eq(0);
  at::Tensor scaled = x * column;
  if (scaled.is_cpu()) return scaled.masked_fill_(dropped, 0);  // without another copy
  return at::where(dropped, at::zeros({}, x.options()), scaled);
}

/// x without the rows of factor 0: those samples are dropped because their gradient is not finite,
/// and zero times that is not zero. Checking is free on the CPU; on a GPU x is always masked.
inline at::Tensor without_dropped(const at::Tensor& x, const at::Tensor& factors) {
  const at::Tensor dropped = factors.eq(0);
  if (dropped.is_cpu() && !dropped.any().item<bool>()) return x;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  return at::where(dropped.view(shape), at::zeros({}, x.options()), x);
}

/// Products whose result is float32 although the operands are 16-bit: on a GPU by the tensor
/// cores' accumulator, elsewhere by widening first.
inline at::Tensor wide_bmm(const at::Tensor& x, const at::Tensor& y) {
  if (x.is_cuda() && wide_type(x) != x.scalar_type()) return at::bmm(x, y, at::kFloat);
  return at::bmm(at_least_float(x), at_least_float(y));
}
inline at::Tensor wide_mm(const at::Tensor& x, const at::Tensor& y) {
  if (x.is_cuda() && wide_type(x) != x.scalar_type()) return at::mm(x, y, at::kFloat);
  return at::mm(at_least_float(x), at_least_float(y));
}

/// Sum of squares over all but the first dimension [n], double. Squares of float32 numbers leave
/// their range below 1e-19 and above 1e19: on the CPU such rows are done again in double. On a GPU,
/// where looking would stop the stream, they become 0 or infinity, which is safe: a norm that small
/// is never clipped, and a sample of infinite norm is dropped.
at::Tensor row_squares(const at::Tensor& x);
/// The same, in double from the start.
at::Tensor wide_row_squares(const at::Tensor& x);

// Margins of squared norms.
using kernels::bounded_gram;
using kernels::gram_underflow;
using kernels::kTrustedCancellation;
using kernels::with_rounding_of_sum;

}  // namespace moonshard::privacy
