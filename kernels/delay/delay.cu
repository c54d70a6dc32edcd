#include "kernels/common/elementwise_launch.h"

#include <cstdint>

#include "kernels/common/architecture.h"

namespace moonshard::kernels {
namespace {

__device__ uint64_t nanoseconds_now() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ void sleep_until(uint64_t end) {
  do {
    __nanosleep(500);
  } while (nanoseconds_now() < end);
}

__global__ void delay_kernel(uint64_t nanoseconds) {
  sleep_until(nanoseconds_now() + nanoseconds);
}

// When this device's port is free. Whose turn it is shows on the device, when a transfer is ready:
// in the host's order one that waits for its tensor would keep others from an idle port.
__device__ unsigned long long port_is_free_at = 0;

__global__ void transfer_kernel(uint64_t port_ns, uint64_t latency_ns) {
  const uint64_t now = nanoseconds_now();
  unsigned long long seen = atomicAdd(&port_is_free_at, 0ULL), taken, end;
  do {
    taken = seen;
    end = (taken > now ? taken : now) + port_ns;
    seen = atomicCAS(&port_is_free_at, taken, end);
  } while (seen != taken);
  sleep_until(end + latency_ns);
}

// Every number is read once.
__global__ void repeat_kernel(uint4* rows, const uint4* row, int64_t length, int64_t count,
                              int64_t except) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < length; i += step) {
    const uint4 value = row[i];
    for (int64_t r = 0; r < count; ++r)
      if (r != except) rows[r * length + i] = value;
  }
}

// An SM divides its memory into cache and shared memory for all blocks that it has: one that waits
// under another division would keep blocks of matrix products, which use nearly all of it, away.
template <auto kernel>
void leave_shared_memory() {
  static const cudaError_t told = cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (told != cudaSuccess) cudaGetLastError();  // a wish, no more
}

uint64_t in_nanoseconds(double microseconds) {
  return static_cast<uint64_t>(microseconds * 1000);
}

}  // namespace

void launch_delay(double microseconds, void* cuda_stream) {
  if (microseconds <= 0) return;
  leave_shared_memory<delay_kernel>();
  delay_kernel<<<1, 1, 0, static_cast<cudaStream_t>(cuda_stream)>>>(in_nanoseconds(microseconds));
  check_launch("delay");
}

void launch_transfer(double port_us, double latency_us, void* cuda_stream) {
  if (port_us + latency_us <= 0) return;
  leave_shared_memory<transfer_kernel>();
  transfer_kernel<<<1, 1, 0, static_cast<cudaStream_t>(cuda_stream)>>>(in_nanoseconds(port_us),
                                                                       in_nanoseconds(latency_us));
  check_launch("delay");
}

void launch_repeat(void* rows, const void* row, int64_t bytes, int64_t count, int64_t except,
                   void* cuda_stream) {
  constexpr int kBlocks = 32, kThreads = 1024;
  if (bytes <= 0 || count <= 0) return;
  leave_shared_memory<repeat_kernel>();
  repeat_kernel<<<kBlocks, kThreads, 0, static_cast<cudaStream_t>(cuda_stream)>>>(
      static_cast<uint4*>(rows), static_cast<const uint4*>(row),
      bytes / static_cast<int64_t>(sizeof(uint4)), count, except);
  check_launch("repeat");
}

}  // namespace moonshard::kernels
