#include "kernels/split_float/split_float.h"

#include <ATen/ATen.h>

#include "runtime/base/check.h"

namespace moonshard::kernels {

at::Tensor joined_float(const at::Tensor& high, const at::Tensor& low) {
  const at::NoGradGuard no_grad;
  MS_ASSERT(high.scalar_type() == at::kBFloat16 && low.scalar_type() == at::kShort,
            "halves of {} and {}", c10::toString(high.scalar_type()),
            c10::toString(low.scalar_type()));
  at::Tensor bits = high.contiguous().view(at::kShort).to(at::kInt);
  bits.mul_(65536).add_(low.view_as(bits));
  return bits.view(at::kFloat);
}

void split_float(const at::Tensor& value, at::Tensor high, at::Tensor low) {
  const at::NoGradGuard no_grad;
  MS_ASSERT(value.scalar_type() == at::kFloat, "split of {}", c10::toString(value.scalar_type()));
  // The sum below would carry a NaN of large payload over to zero.
  const at::Tensor bits =
      at::where(value.isnan(), at::full({}, NAN, value.options()), value).view(at::kInt);
  const at::Tensor upper = (bits + 0x8000).bitwise_right_shift(16);
  high.copy_(upper.to(at::kShort).view(at::kBFloat16).view(high.sizes()));
  low.copy_((bits - upper.mul(65536)).view(low.sizes()));
}

}  // namespace moonshard::kernels
