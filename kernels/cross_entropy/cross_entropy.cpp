#include "kernels/cross_entropy/cross_entropy.h"

#include <ATen/ATen.h>

#include "kernels/common/cuda_library.h"
#include "kernels/common/fused_tensors.h"
#include "kernels/cross_entropy/cross_entropy_launch.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

void check_shapes(const at::Tensor& scores, const at::Tensor& labels) {
  MS_CHECK(scores.dim() == 2 && labels.dim() == 1 && labels.size(0) == scores.size(0) &&
               labels.scalar_type() == at::kLong && labels.device() == scores.device(),
           "cross_entropy: expected scores [N, V] and int64 labels [N] on one device, got {} and "
           "{} {}",
           c10::str(scores.sizes()), c10::toString(labels.scalar_type()), c10::str(labels.sizes()));
}

CrossEntropy described(const at::Tensor& scores, const at::Tensor& labels, double cap) {
  CrossEntropy p;
  p.cap = static_cast<float>(cap);
  p.scores = scores.const_data_ptr();
  p.labels = labels.const_data_ptr<int64_t>();
  p.ignored_label = kIgnoredLabel;
  p.rows = scores.size(0);
  p.width = scores.size(1);
  p.format = number_format(scores);
  return p;
}

}  // namespace

bool cross_entropy_kernel_runs(const at::Tensor& scores) {
  return fused_kernel_runs("cross_entropy", scores);
}

RowLosses cross_entropy_forward(const at::Tensor& scores, const at::Tensor& labels, double cap) {
  check_shapes(scores, labels);
  if (!cross_entropy_kernel_runs(scores)) return cross_entropy_forward_ref(scores, labels, cap);
  const at::Tensor plain_scores = scores.contiguous(), plain_labels = labels.contiguous();
  const auto options = scores.options().dtype(at::kFloat);
  const RowLosses result{at::empty({scores.size(0)}, options),
                         at::empty({scores.size(0)}, options)};
  cuda().launch_cross_entropy_forward(described(plain_scores, plain_labels, cap),
                                      result.losses.mutable_data_ptr<float>(),
                                      result.log_sums.mutable_data_ptr<float>(), stream_of(scores));
  return result;
}

at::Tensor cross_entropy_backward(const at::Tensor& scores, const at::Tensor& labels,
                                  const at::Tensor& log_sums, const at::Tensor& factors,
                                  bool overwrite, double cap) {
  check_shapes(scores, labels);
  MS_CHECK(
      factors.sizes() == labels.sizes() && log_sums.sizes() == labels.sizes(),
      "cross_entropy: expected one factor and one logarithm for each of {} rows, got {} and {}",
      labels.size(0), c10::str(factors.sizes()), c10::str(log_sums.sizes()));
  if (!cross_entropy_kernel_runs(scores))
    return placed(cross_entropy_backward_ref(scores, labels, log_sums, factors, cap), scores,
                  overwrite);
  const at::Tensor plain_scores = scores.contiguous(), plain_labels = labels.contiguous(),
                   plain_sums = log_sums.contiguous(),
                   plain_factors = factors.to(at::kFloat).contiguous();
  at::Tensor gradient = overwrite ? plain_scores : at::empty_like(plain_scores);
  cuda().launch_cross_entropy_backward(
      described(plain_scores, plain_labels, cap), plain_sums.const_data_ptr<float>(),
      plain_factors.const_data_ptr<float>(), gradient.mutable_data_ptr(), stream_of(scores));
  return gradient;
}

}  // namespace moonshard::kernels
