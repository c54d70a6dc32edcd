#include "kernels/common/no_cuda.h"
#include "kernels/rotary/rotary_launch.h"

namespace moonshard::kernels {

void launch_rotary(const Rotary&, void*) {
  fail_without_cuda("rotary");
}

}  // namespace moonshard::kernels
