// What the CUDA runtime says of a device, without ATen.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

/// 90 for compute capability 9.0; 0 in a build without CUDA kernels.
int device_architecture(int device);
/// Multiprocessors of the device; 0 in a build without CUDA kernels.
int device_multiprocessors(int device);
/// Memory of the device in bytes; 0 in a build without CUDA kernels.
int64_t device_memory_bytes(int device);
/// Throws std::runtime_error that names the operation when its launch failed.
void check_launch(const char* operation);

}  // namespace moonshard::kernels
