// Device properties from the CUDA runtime, without ATen.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

/// 90 for compute capability 9.0.
int device_architecture(int device);
/// Memory of the device in bytes.
int64_t device_memory_bytes(int device);
/// Throws std::runtime_error that names the operation when its launch failed.
void check_launch(const char* operation);

}  // namespace moonshard::kernels
