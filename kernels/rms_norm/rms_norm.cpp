#include "kernels/rms_norm/rms_norm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/common/cuda_library.h"
#include "kernels/common/fused_tensors.h"
#include "kernels/rms_norm/rms_norm_launch.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

// Chunks of a batch times the width: 4096 numbers for each of the two blocks that 132
// multiprocessors hold, the most of GPUs in use. A constant: sums have one order on every GPU.
constexpr int64_t kRmsChunkNumbers = 264 * 4096;

// The kernels take a weight of the rows' dtype, or float32.
at::Tensor readable_weight(const at::Tensor& weight, const at::Tensor& x) {
  const bool as_it_is =
      weight.scalar_type() == at::kFloat || weight.scalar_type() == x.scalar_type();
  return (as_it_is ? weight : weight.to(x.scalar_type())).contiguous();
}

void check_shapes(const at::Tensor& x, const at::Tensor& other, const at::Tensor& weight) {
  MS_CHECK(x.dim() >= 2 && weight.numel() == x.size(-1) &&
               (!other.defined() ||
                (other.sizes() == x.sizes() && other.scalar_type() == x.scalar_type())),
           "rms_norm: expected rows of one format and shape [B, ..., {}], got {} {} and {}",
           weight.numel(), c10::toString(x.scalar_type()), c10::str(x.sizes()),
           other.defined() ? c10::str(other.sizes()) : "none");
}

}  // namespace

bool rms_norm_kernel_runs(const at::Tensor& x) {
  if (!fused_kernel_runs("rms_norm", x)) return false;
  if (x.size(-1) <= kRmsNormMostWidth) return true;
  note_fallback("rms_norm", "a width of " + std::to_string(x.size(-1)) + ", which is above " +
                                std::to_string(kRmsNormMostWidth));
  return false;
}

AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                       double eps) {
  check_shapes(x, delta, weight);
  if (!rms_norm_kernel_runs(x)) return add_rms_norm_ref(x, delta, weight, eps);
  const at::Tensor plain_x = x.contiguous(), scale = readable_weight(weight, x),
                   plain_delta = delta.defined() ? delta.contiguous() : at::Tensor();
  std::vector<int64_t> statistics_shape = x.sizes().vec();
  statistics_shape.back() = 1;
  const AddedNorm result{delta.defined() ? at::empty_like(plain_x) : x, at::empty_like(plain_x),
                         at::empty(statistics_shape, x.options().dtype(at::kFloat))};
  RmsNormForward p;
  p.x = plain_x.const_data_ptr();
  p.delta = pointer_or_null(plain_delta);
  p.weight = scale.const_data_ptr();
  p.y = delta.defined() ? result.y.mutable_data_ptr() : nullptr;
  p.n = result.n.mutable_data_ptr();
  p.inverse_spread = result.inverse_spread.mutable_data_ptr<float>();
  p.width = static_cast<int>(x.size(-1));
  p.rows = x.numel() / x.size(-1);
  p.eps = static_cast<float>(eps);
  p.format = number_format(x);
  p.weight_format = number_format(scale);
  cuda().launch_rms_norm_forward(p, stream_of(x));
  return result;
}

RmsNormGradients rms_norm_backward(const at::Tensor& dn, const at::Tensor& dy, const at::Tensor& y,
                                   const at::Tensor& inverse_spread, const at::Tensor& weight,
                                   const RmsNormWants& wants) {
  check_shapes(y, dn, weight);
  check_shapes(y, dy, weight);
  if (!rms_norm_kernel_runs(y))
    return rms_norm_backward_ref(dn, dy, y, inverse_spread, weight, wants);
  const at::Tensor plain_y = y.contiguous(), plain_dn = dn.contiguous(),
                   plain_dy = dy.defined() ? dy.contiguous() : at::Tensor(),
                   spread = inverse_spread.contiguous(), scale = readable_weight(weight, y);
  const int64_t width = y.size(-1), samples = y.size(0), tokens = y.numel() / (samples * width);
  const int64_t chunks = wants.weight_rows
                             ? std::clamp<int64_t>(kRmsChunkNumbers / (width * samples), 1, tokens)
                             : tokens;
  const auto rows_options = y.options().dtype(at::kFloat);
  RmsNormGradients gradients;
  at::Tensor chunk_rows;
  if (wants.input) gradients.input = at::empty_like(plain_y);
  if (wants.normalised) gradients.normalised = at::empty_like(plain_y);
  if (wants.weight_rows) {
    gradients.weight_rows = at::empty({samples, width}, rows_options);
    if (chunks > 1) chunk_rows = at::empty({samples, chunks, width}, rows_options);
  }
  RmsNormBackward p;
  p.dn = plain_dn.const_data_ptr();
  p.dy = pointer_or_null(plain_dy);
  p.y = plain_y.const_data_ptr();
  p.inverse_spread = spread.const_data_ptr<float>();
  p.weight = scale.const_data_ptr();
  p.dx = mutable_pointer_or_null(gradients.input);
  p.normalised = mutable_pointer_or_null(gradients.normalised);
  p.weight_rows = static_cast<float*>(mutable_pointer_or_null(gradients.weight_rows));
  p.chunk_rows = static_cast<float*>(mutable_pointer_or_null(chunk_rows));
  p.samples = samples;
  p.tokens = tokens;
  p.chunks = static_cast<int>(chunks);
  p.width = static_cast<int>(width);
  p.format = number_format(y);
  p.weight_format = number_format(scale);
  cuda().launch_rms_norm_backward(p, stream_of(y));
  return gradients;
}

}  // namespace moonshard::kernels
