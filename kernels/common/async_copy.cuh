// Copies from global to shared memory that no register waits for, and the barriers that tell of
// their arrival. For one warp: its 32 lanes copy, and its 32 lanes wait.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/shared_address.cuh"

namespace moonshard::kernels {
namespace {

// Counts the lanes whose copies have arrived; its phases alternate.
struct CopyBarrier {
  uint64_t state;

  // By one lane, before a __syncwarp.
  __device__ __forceinline__ void init() {
    asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(shared_address(&state)) : "memory");
  }
  // By all lanes: this lane has arrived when its copies until now have.
  __device__ __forceinline__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&state))
                 : "memory");
  }
  // For the end of the phase of this parity, the first being 0.
  __device__ __forceinline__ void wait(uint32_t parity) {
    uint32_t done;
    do {
#if __CUDA_ARCH__ >= 900
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(shared_address(&state)), "r"(parity)
          : "memory");
#else
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(shared_address(&state)), "r"(parity)
          : "memory");
#endif
    } while (done == 0);
  }
};

// The lane's share of kBytes, in pieces of 16 bytes: those from its own first one on. They pass by
// the first cache.
template <int kBytes>
__device__ __forceinline__ void copy_by_warp(uint32_t lanes_shared, const void* lanes_global) {
  static_assert(kBytes % 512 == 0);
#pragma unroll
  for (int done = 0; done < kBytes; done += 512)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(lanes_shared + done),
                 "l"(static_cast<const char*>(lanes_global) + done)
                 : "memory");
}

}  // namespace
}  // namespace moonshard::kernels
