#include "kernels/rotary/rotary.h"

#include <ATen/ATen.h>

#include "kernels/common/cuda_library.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/common/fused_tensors.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

void check_shapes(const at::Tensor& x, const char* name, const at::Tensor& cosines,
                  const at::Tensor& sines) {
  MS_CHECK(cosines.dim() == 2 && cosines.sizes() == sines.sizes() && x.dim() == 3 &&
               x.is_contiguous() && x.size(1) == cosines.size(0) &&
               x.size(2) % (2 * cosines.size(1)) == 0,
           "rotary: expected {} [B, T, H d], contiguous, and tables [T, d / 2], got {} of strides "
           "{} and tables {} and {}",
           name, c10::str(x.sizes()), c10::str(x.strides()), c10::str(cosines.sizes()),
           c10::str(sines.sizes()));
}

}  // namespace

bool rotary_kernel_runs(const at::Tensor& q) {
  return fused_kernel_runs("rotary", q);
}

void rotate_in_place(at::Tensor& q, at::Tensor& k, const at::Tensor& cosines,
                     const at::Tensor& sines, bool inverse) {
  check_shapes(q, "q", cosines, sines);
  check_shapes(k, "k", cosines, sines);
  MS_CHECK(q.scalar_type() == k.scalar_type() && q.size(0) == k.size(0),
           "rotary: expected q and k of one format and batch, got {} {} and {} {}",
           c10::toString(q.scalar_type()), c10::str(q.sizes()), c10::toString(k.scalar_type()),
           c10::str(k.sizes()));
  if (!rotary_kernel_runs(q)) return rotate_in_place_ref(q, k, cosines, sines, inverse);
  const at::Tensor wide_cosines = cosines.to(at::kFloat).contiguous(),
                   wide_sines = sines.to(at::kFloat).contiguous();
  Rotary p;
  p.q = q.mutable_data_ptr();
  p.k = k.mutable_data_ptr();
  p.cosines = wide_cosines.const_data_ptr<float>();
  p.sines = wide_sines.const_data_ptr<float>();
  p.tokens = q.size(1);
  p.rows = q.size(0) * q.size(1);
  p.half = static_cast<int>(cosines.size(1));
  p.q_heads = static_cast<int>(q.size(2) / (2 * cosines.size(1)));
  p.k_heads = static_cast<int>(k.size(2) / (2 * cosines.size(1)));
  p.inverse = inverse;
  p.format = number_format(q);
  cuda().launch_rotary(p, stream_of(q));
}

}  // namespace moonshard::kernels
