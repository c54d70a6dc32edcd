#include "kernels/layer_norm/layer_norm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/common/cuda_library.h"
#include "kernels/common/fused_tensors.h"
#include "kernels/layer_norm/layer_norm_launch.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

// Chunks of a batch times the width: 1024 numbers for each of the eight blocks that 132
// multiprocessors hold, the most of GPUs in use. A constant: sums have one order on every GPU.
constexpr int64_t kLayerChunkNumbers = 1056 * 1024;

void check_shapes(const at::Tensor& x, const NormSurroundings& around) {
  const bool pairs = around.branch.defined() == around.gate.defined() &&
                     around.weight.defined() == around.bias.defined() &&
                     around.scale.defined() == around.shift.defined();
  MS_CHECK(pairs && x.dim() >= 2,
           "layer_norm: expected x [B, ..., d], and branch and gate, weight and bias, scale and "
           "shift in pairs, got x {}",
           c10::str(x.sizes()));
  for (const at::Tensor& rows : {around.gate, around.scale, around.shift}) {
    MS_CHECK(
        !rows.defined() || (rows.dim() == 2 && rows.size(0) == x.size(0) &&
                            rows.size(1) == x.size(-1) && rows.scalar_type() == x.scalar_type()),
        "layer_norm: expected a row of {} {} for each of {} samples, got {} {}", x.size(-1),
        c10::toString(x.scalar_type()), x.size(0), c10::toString(rows.scalar_type()),
        c10::str(rows.sizes()));
  }
  MS_CHECK(!around.branch.defined() || (around.branch.sizes() == x.sizes() &&
                                        around.branch.scalar_type() == x.scalar_type()),
           "layer_norm: expected a branch like x, {}, got {}", c10::str(x.sizes()),
           c10::str(around.branch.sizes()));
  MS_CHECK(!around.weight.defined() ||
               (around.weight.numel() == x.size(-1) && around.bias.numel() == x.size(-1)),
           "layer_norm: expected {} weights and biases, got {} and {}", x.size(-1),
           around.weight.numel(), around.bias.numel());
}

// As the kernels read them: rows contiguous in themselves, parameters of the dtype or float32.
NormSurroundings readable(const NormSurroundings& around, const at::Tensor& x) {
  const auto rows = [](const at::Tensor& t) {
    return !t.defined() || t.stride(1) == 1 || t.size(1) == 1 ? t : t.contiguous();
  };
  const bool same =
      around.weight.defined() && around.bias.scalar_type() == around.weight.scalar_type();
  const auto parameter = [&](const at::Tensor& t) {
    if (!t.defined()) return t;
    const bool known =
        same && (t.scalar_type() == at::kFloat || t.scalar_type() == x.scalar_type());
    return (known ? t : t.to(x.scalar_type())).contiguous();
  };
  return {around.branch.defined() ? around.branch.contiguous() : at::Tensor(),
          rows(around.gate),
          parameter(around.weight),
          parameter(around.bias),
          rows(around.scale),
          rows(around.shift)};
}

SampleRows sample_rows(const at::Tensor& rows) {
  return rows.defined() ? SampleRows{rows.const_data_ptr(), rows.stride(0)} : SampleRows{};
}

}  // namespace

bool layer_norm_kernel_runs(const at::Tensor& x) {
  if (!fused_kernel_runs("layer_norm", x)) return false;
  if (x.size(-1) <= kLayerNormMostWidth) return true;
  note_fallback("layer_norm", "a width of " + std::to_string(x.size(-1)) + ", which is above " +
                                  std::to_string(kLayerNormMostWidth));
  return false;
}

SurroundedNorm layer_norm_forward(const at::Tensor& x, const NormSurroundings& around, double eps) {
  check_shapes(x, around);
  if (!layer_norm_kernel_runs(x)) return layer_norm_forward_ref(x, around, eps);
  const at::Tensor plain_x = x.contiguous();
  const NormSurroundings parts = readable(around, x);
  std::vector<int64_t> statistics_shape = x.sizes().vec();
  statistics_shape.back() = 1;
  const auto statistics_options = x.options().dtype(at::kFloat);
  const SurroundedNorm result{parts.branch.defined() ? at::empty_like(plain_x) : x,
                              at::empty_like(plain_x),
                              at::empty(statistics_shape, statistics_options),
                              at::empty(statistics_shape, statistics_options)};
  LayerNormForward p;
  p.x = plain_x.const_data_ptr();
  p.branch = pointer_or_null(parts.branch);
  p.gate = sample_rows(parts.gate);
  p.scale = sample_rows(parts.scale);
  p.shift = sample_rows(parts.shift);
  p.weight = pointer_or_null(parts.weight);
  p.bias = pointer_or_null(parts.bias);
  p.y = parts.branch.defined() ? result.y.mutable_data_ptr() : nullptr;
  p.result = result.result.mutable_data_ptr();
  p.mean = result.mean.mutable_data_ptr<float>();
  p.inverse_spread = result.inverse_spread.mutable_data_ptr<float>();
  p.samples = x.size(0);
  p.width = static_cast<int>(x.size(-1));
  p.tokens = x.numel() / (x.size(0) * x.size(-1));
  p.eps = static_cast<float>(eps);
  p.format = number_format(x);
  p.weight_format = parts.weight.defined() ? number_format(parts.weight) : p.format;
  cuda().launch_layer_norm_forward(p, stream_of(x));
  return result;
}

LayerNormGradients layer_norm_backward(const at::Tensor& d_result, const at::Tensor& dy,
                                       const SurroundedNorm& forward,
                                       const NormSurroundings& around, const LayerNormWants& wants,
                                       bool overwrite) {
  check_shapes(forward.y, around);
  if (!layer_norm_kernel_runs(forward.y)) {
    LayerNormGradients plain = layer_norm_backward_ref(d_result, dy, forward, around, wants);
    if (plain.branch.defined()) plain.branch = placed(plain.branch, d_result, overwrite);
    return plain;
  }
  const at::Tensor y = forward.y.contiguous(), out = d_result.contiguous(),
                   plain_dy = dy.defined() ? dy.contiguous() : at::Tensor(),
                   mean = forward.mean.contiguous(), spread = forward.inverse_spread.contiguous();
  const NormSurroundings parts = readable(around, y);
  const int64_t width = y.size(-1), samples = y.size(0), tokens = y.numel() / (samples * width);
  const auto wide = y.options().dtype(at::kFloat);
  const bool gated = parts.branch.defined(), modulated = parts.scale.defined();
  const bool sums = gated || modulated || wants.parameter_rows;
  const int64_t chunks =
      sums ? std::clamp<int64_t>(kLayerChunkNumbers / (width * samples), 1, tokens) : tokens;
  const auto rows_like = [&](bool wanted, const at::TensorOptions& options) {
    return wanted ? at::empty({samples, width}, options) : at::Tensor();
  };
  LayerNormGradients gradients;
  gradients.x = at::empty_like(y);
  if (gated) gradients.branch = overwrite ? out : at::empty_like(y);
  gradients.gate = rows_like(gated, y.options());
  gradients.scale = rows_like(modulated, y.options());
  gradients.shift = rows_like(modulated, y.options());
  gradients.weight_rows = rows_like(wants.parameter_rows, wide);
  gradients.bias_rows = rows_like(wants.parameter_rows, wide);
  if (wants.normalised) {
    gradients.normalised = at::empty_like(y);
    gradients.n = at::empty_like(y);
  }
  const at::Tensor chunk_sums = sums ? at::empty({samples, chunks, 3, width}, wide) : at::Tensor();
  LayerNormBackward p;
  p.d_result = out.const_data_ptr();
  p.dy = pointer_or_null(plain_dy);
  p.y = y.const_data_ptr();
  p.branch = pointer_or_null(parts.branch);
  p.gate = sample_rows(parts.gate);
  p.scale = sample_rows(parts.scale);
  p.weight = pointer_or_null(parts.weight);
  p.bias = pointer_or_null(parts.bias);
  p.mean = mean.const_data_ptr<float>();
  p.inverse_spread = spread.const_data_ptr<float>();
  p.dx = gradients.x.mutable_data_ptr();
  p.d_branch = mutable_pointer_or_null(gradients.branch);
  p.normalised = mutable_pointer_or_null(gradients.normalised);
  p.dn = mutable_pointer_or_null(gradients.n);
  p.d_gate = mutable_pointer_or_null(gradients.gate);
  p.d_scale = mutable_pointer_or_null(gradients.scale);
  p.d_shift = mutable_pointer_or_null(gradients.shift);
  p.weight_rows = static_cast<float*>(mutable_pointer_or_null(gradients.weight_rows));
  p.bias_rows = static_cast<float*>(mutable_pointer_or_null(gradients.bias_rows));
  p.chunk_sums = static_cast<float*>(mutable_pointer_or_null(chunk_sums));
  p.samples = samples;
  p.tokens = tokens;
  p.chunks = static_cast<int>(chunks);
  p.width = static_cast<int>(width);
  p.format = number_format(y);
  p.weight_format = parts.weight.defined() ? number_format(parts.weight) : p.format;
  cuda().launch_layer_norm_backward(p, stream_of(y));
  return gradients;
}

}  // namespace moonshard::kernels
