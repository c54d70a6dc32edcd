// Stands in for the .cu files where there is no nvcc or no CUDA in LibTorch.
#include <stdexcept>
#include <string>

#include "kernels/counter_noise/counter_noise_launch.h"
#include "kernels/delay/delay.h"

namespace moonshard::kernels {

namespace {

[[noreturn]] void fail(const char* operation) {
  throw std::runtime_error(std::string(operation) +
                           ": expected a build with CUDA kernels, got one without; install nvcc "
                           "and configure again with -DMOONSHARD_CUDA=ON, or use device = \"cpu\"");
}

}  // namespace

void launch_counter_noise(void*, int, int64_t, double, const NoiseStream&, int64_t, void*) {
  fail("counter_noise");
}

void launch_delay(double, void*) {
  fail("delay");
}

}  // namespace moonshard::kernels
