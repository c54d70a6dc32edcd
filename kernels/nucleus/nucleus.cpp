#include "kernels/nucleus/nucleus.h"

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "kernels/nucleus/nucleus_launch.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {

at::Tensor nucleus_border(const at::Tensor& parts, double share) {
  MS_CHECK(parts.dim() == 2 && parts.scalar_type() == at::kInt && share > 0 && share <= 1,
           "nucleus: expected int32 [B, V] and a share above 0 and up to 1, got {} {} and {}",
           c10::toString(parts.scalar_type()), c10::str(parts.sizes()), share);
  if (!parts.is_cuda() || parts.numel() == 0 || !kernel_runs("nucleus", parts))
    return nucleus_border_ref(parts, share);
  const at::Tensor rows = parts.contiguous();
  at::Tensor borders = at::empty({rows.size(0), 1}, rows.options());
  cuda().launch_nucleus_border(rows.const_data_ptr<int32_t>(), rows.size(0), rows.size(1), share,
                               borders.mutable_data_ptr<int32_t>(), stream_of(rows));
  return borders;
}

}  // namespace moonshard::kernels
