#include "kernels/common/no_cuda.h"
#include "kernels/flash_norm/flash_norm_launch.h"

namespace moonshard::kernels {

int64_t flash_norm_scratch(const FlashNormProblem*, int, GemmSchedule) {
  fail_without_cuda("flash_norm");
}

void launch_flash_norm(const FlashNormProblem*, int, float*, double*, GemmSchedule, void*) {
  fail_without_cuda("flash_norm");
}

int64_t flash_norm_mma_scratch(const FlashNormProblem*, int) {
  fail_without_cuda("flash_norm");
}

void launch_flash_norm_mma(const FlashNormProblem*, int, float*, double*, void*) {
  fail_without_cuda("flash_norm");
}

}  // namespace moonshard::kernels
