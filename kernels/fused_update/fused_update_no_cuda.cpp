#include "kernels/common/no_cuda.h"
#include "kernels/fused_update/fused_update_launch.h"

namespace moonshard::kernels {

void launch_fused_update(const RawUpdatePart*, int, const RawUpdateRule&, void*) {
  fail_without_cuda("fused_update");
}

}  // namespace moonshard::kernels
