#include "kernels/common/no_cuda.h"
#include "kernels/secure_noise/secure_noise_launch.h"

namespace moonshard::kernels {

void launch_secure_noise(void*, bool, int64_t, double, const SecureStream&, int64_t, void*) {
  fail_without_cuda("secure_noise");
}

}  // namespace moonshard::kernels
