#include "kernels/common/architecture.h"

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace moonshard::kernels {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) != cudaSuccess) {
    cudaGetLastError();  // clears the error of a missing device: no later launch should report it
    return 0;
  }
  return value;
}

}  // namespace

int device_architecture(int device) {
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor, device) +
         attribute(cudaDevAttrComputeCapabilityMinor, device);
}

int64_t device_memory_bytes(int device) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return static_cast<int64_t>(properties.totalGlobalMem);
}

void check_launch(const char* operation) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(operation) + ": launch failed: " + cudaGetErrorName(error) +
                           ": " + cudaGetErrorString(error));
}

}  // namespace moonshard::kernels
