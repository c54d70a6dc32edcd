// Where something lies in a block's shared memory, as instructions that copy into it want it.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace moonshard::kernels
