#include "kernels/common/no_cuda.h"
#include "kernels/swiglu/swiglu_launch.h"

namespace moonshard::kernels {

void launch_swiglu_forward(const void*, const void*, void*, int64_t, NumberFormat, void*) {
  fail_without_cuda("swiglu");
}

void launch_swiglu_backward(const void*, const void*, const void*, void*, void*, int64_t,
                            NumberFormat, void*) {
  fail_without_cuda("swiglu");
}

}  // namespace moonshard::kernels
