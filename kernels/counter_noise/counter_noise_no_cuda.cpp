#include "kernels/common/no_cuda.h"
#include "kernels/counter_noise/counter_noise_launch.h"

namespace moonshard::kernels {

void launch_counter_noise(void*, int, int64_t, double, const NoiseStream&, int64_t, void*) {
  fail_without_cuda("counter_noise");
}

}  // namespace moonshard::kernels
