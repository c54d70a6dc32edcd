// Cross-entropy of rows of scores: log(sum over v of exp(s_v)) - s_label, without a copy of the
// scores in a wider dtype. With a cap > 0 of the scores cap tanh(s / cap) instead, which are never
// stored.
//
// scores [N, V] of one dtype, labels [N] int64; kIgnoredLabel gives a loss of 0 and no gradient. On
// a GPU float32 and bfloat16 contiguous scores take one pass forward and one backward; float64,
// half and the CPU take the reference. Losses are float32 or wider and agree with the reference
// within 2e-6 of the largest score's size; gradients within one ulp.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

inline constexpr int64_t kIgnoredLabel = -100;

/// Whether the kernels run for scores such as these.
bool cross_entropy_kernel_runs(const at::Tensor& scores);

struct RowLosses {
  at::Tensor losses;    ///< [N]; NaN where a label is outside of 0 ... V-1
  at::Tensor log_sums;  ///< [N]: what backward needs besides the scores
};

RowLosses cross_entropy_forward(const at::Tensor& scores, const at::Tensor& labels, double cap = 0);
RowLosses cross_entropy_forward_ref(const at::Tensor& scores, const at::Tensor& labels,
                                    double cap = 0);

/// Gradient of sum over n of factors[n] * losses[n], like the scores. factors [N], float32 or
/// wider. With `overwrite` it is written into the scores' memory, which must not be shared.
at::Tensor cross_entropy_backward(const at::Tensor& scores, const at::Tensor& labels,
                                  const at::Tensor& log_sums, const at::Tensor& factors,
                                  bool overwrite = false, double cap = 0);
at::Tensor cross_entropy_backward_ref(const at::Tensor& scores, const at::Tensor& labels,
                                      const at::Tensor& log_sums, const at::Tensor& factors,
                                      double cap = 0);

}  // namespace moonshard::kernels
