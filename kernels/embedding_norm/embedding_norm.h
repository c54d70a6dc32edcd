// An embedding's gradient of sample b has, in the row of each id, the sum of g over the positions
// that hold the id; positions of the padding id have none. Two results are computed from it: each
// sample's squared norm (rows of one sample add up before they are squared), and the sum over
// samples, each times its factor. Both use ids that are sorted first (by ATen), so that equal ids
// are adjacent: no [B, V, d] table, no atomics, and equal inputs give equal bits.
//
// Dtypes: ids [B, T] int64; g [B, T, d]. The kernels take bfloat16 and float32 g with a stride of 1
// in the last dimension, and a float32 out; everything else is done by the reference, on a GPU with
// one logged line. Sums are in double, so that the results are as exact as their dtype; the
// reference adds in g's wide type (float32 or double): they agree within 1e-5 of the uncancelled
// sum. Work runs on the current stream of the tensors' device.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

/// Squared norms [B], double. padding_id < 0: there is none.
at::Tensor embedding_norm(const at::Tensor& ids, const at::Tensor& g, int64_t padding_id);

/// out [V, d] += sum over samples b of factors[b] times b's gradient; without factors each counts
/// once. Rows of ids that do not occur are not touched. A sample of factor 0 adds nothing even
/// where its g is not finite.
void embedding_sum(at::Tensor& out, const at::Tensor& ids, const at::Tensor& g,
                   const at::Tensor& factors, int64_t padding_id);

/// The definitions of correct: any device, any float type.
at::Tensor embedding_norm_ref(const at::Tensor& ids, const at::Tensor& g, int64_t padding_id);
void embedding_sum_ref(at::Tensor& out, const at::Tensor& ids, const at::Tensor& g,
                       const at::Tensor& factors, int64_t padding_id);

}  // namespace moonshard::kernels
