// Devices and dtypes by name. LibTorch's CUDA libraries are loaded when a GPU is first used, so
// that programs without a GPU start fast and run on machines that have none.
#pragma once

#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace moonshard {

/// "auto" (a GPU when there is one), "cpu", "cuda", "cuda:1", and "meta" (shapes only, no memory).
/// Throws UsageError when a GPU is asked for and there is none, saying why.
c10::Device resolve_device(const std::string& name);

/// Number of GPUs LibTorch can use here; 0 with the reason in cuda_absence_reason().
int cuda_device_count();
std::string cuda_absence_reason();

/// "float32", "float64", "bfloat16", "float16", "int64", "bool", … and back.
c10::ScalarType dtype_from_name(const std::string& name);
std::string dtype_name(c10::ScalarType type);

}  // namespace moonshard
