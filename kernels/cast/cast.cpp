#include "kernels/cast/cast.h"

#include <ATen/ATen.h>

#include "kernels/common/cuda_library.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/common/fused_tensors.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {

void cast_copy(at::Tensor& to, const at::Tensor& from) {
  MS_CHECK(to.sizes() == from.sizes() && to.device() == from.device(),
           "cast: expected tensors of one shape on one device, got {} on {} and {} on {}",
           c10::str(to.sizes()), to.device().str(), c10::str(from.sizes()), from.device().str());
  const bool known = has_number_format(to) && has_number_format(from) && to.is_contiguous() &&
                     from.is_contiguous() &&
                     (from.scalar_type() == at::kFloat || to.scalar_type() == at::kBFloat16);
  if (!known || !fused_kernel_runs("cast", to)) return cast_copy_ref(to, from);
  cuda().launch_cast(to.mutable_data_ptr(), number_format(to), from.const_data_ptr(),
                     number_format(from), to.numel(), stream_of(to));
}

}  // namespace moonshard::kernels
