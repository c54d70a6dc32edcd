#include "kernels/common/no_cuda.h"
#include "kernels/position_lengths/position_lengths_launch.h"

namespace moonshard::kernels {

void launch_position_lengths(const LengthRows*, int, const LengthPair*, int, double*, double*,
                             void*) {
  fail_without_cuda("position_lengths");
}

void launch_keep_scales(const double*, float*, int64_t, void*) {
  fail_without_cuda("keep_scales");
}

}  // namespace moonshard::kernels
