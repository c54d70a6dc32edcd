// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a counter
// in, four random words out, no state. Shared by the CPU reference and the CUDA kernel, so that
// both draw the same words for the same counter whatever the device, the shard or the world size.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define MS_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define MS_HOST_DEVICE inline
#endif

namespace moonshard::kernels {

struct PhiloxWords {
  uint32_t word[4];
};

// All 64 bits. Of a widened product nvcc makes one instruction and an addition of zero to its half.
MS_HOST_DEVICE uint64_t wide_product(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return static_cast<uint64_t>(a) * b;
#endif
}

MS_HOST_DEVICE PhiloxWords philox4x32_10(PhiloxWords counter, uint32_t key_low, uint32_t key_high) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product_0 = wide_product(0xD2511F53u, counter.word[0]);
    const uint64_t product_1 = wide_product(0xCD9E8D57u, counter.word[2]);
    counter = {{static_cast<uint32_t>(product_1 >> 32) ^ counter.word[1] ^ key_low,
                static_cast<uint32_t>(product_1),
                static_cast<uint32_t>(product_0 >> 32) ^ counter.word[3] ^ key_high,
                static_cast<uint32_t>(product_0)}};
    key_low += 0x9E3779B9u;  // the golden ratio and sqrt(3) - 1: the paper's Weyl constants
    key_high += 0xBB67AE85u;
  }
  return counter;
}

/// Uniform in (0, 1): never 0, so that its logarithm is finite.
MS_HOST_DEVICE float uniform_open(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f + 0x1p-25f;
}

}  // namespace moonshard::kernels
