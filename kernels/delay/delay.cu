#include "kernels/common/elementwise_launch.h"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace moonshard::kernels {
namespace {

__global__ void delay_kernel(uint64_t nanoseconds) {
  uint64_t start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    __nanosleep(500);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

// An SM divides its memory into cache and shared memory for all blocks that it has: one that waits
// under another division would keep blocks of matrix products, which use nearly all of it, away.
void leave_shared_memory() {
  static const cudaError_t told = cudaFuncSetAttribute(
      delay_kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (told != cudaSuccess) cudaGetLastError();  // a wish, no more
}

}  // namespace

void launch_delay(double microseconds, void* cuda_stream) {
  if (microseconds <= 0) return;
  leave_shared_memory();
  delay_kernel<<<1, 1, 0, static_cast<cudaStream_t>(cuda_stream)>>>(
      static_cast<uint64_t>(microseconds * 1000));
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("delay: launch failed: ") + cudaGetErrorName(error) +
                             ": " + cudaGetErrorString(error));
  }
}

}  // namespace moonshard::kernels
