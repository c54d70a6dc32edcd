// What machine and which program made a result: goes into env.json and the doctor's report.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/profile/nvml.h"

namespace moonshard::launch {

/// {"moonshard", "commit", "libtorch", "compiler", "os", "cpu", "cores", "memory_bytes", "gpus",
/// …}. Cheap and without touching a GPU: names of GPUs come from the driver's own files.
Json describe_machine();

std::vector<std::string> gpu_names();
std::string version();  ///< of moonshard
std::string libtorch_version();

// What a parent that must not touch CUDA can know about GPUs: NVML's list, filtered by
// CUDA_VISIBLE_DEVICES, and empty where this LibTorch has no CUDA. Asking LibTorch would load its
// CUDA library and make a context, which holds memory while children are measured.

/// The GPUs that a child process of ours could use, in CUDA's order.
profile::GpuListing usable_gpus();

}  // namespace moonshard::launch
