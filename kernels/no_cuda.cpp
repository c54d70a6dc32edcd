// Stands in for the .cu files where there is no nvcc or no CUDA in LibTorch.
#include <stdexcept>

#include "kernels/counter_noise/counter_noise_launch.h"

namespace moonshard::kernels {

void launch_counter_noise(void*, int, int64_t, double, const NoiseStream&, int64_t, void*) {
  throw std::runtime_error(
      "counter_noise: expected a build with CUDA kernels, got one without; install nvcc and "
      "configure "
      "again with -DMOONSHARD_CUDA=ON, or use device = \"cpu\"");
}

}  // namespace moonshard::kernels
