// What a parent that must not touch CUDA can know about GPUs: NVML's list, filtered by
// CUDA_VISIBLE_DEVICES, and empty where this LibTorch has no CUDA. Asking LibTorch would load its
// CUDA library and make a context, which holds memory while children are measured.
#pragma once

#include "runtime/profile/nvml.h"

namespace moonshard::launch {

/// The GPUs that a child process of ours could use, in CUDA's order.
profile::GpuListing usable_gpus();

/// Folder of the "one run per GPU" locks: MOONSHARD_LOCK_DIR, or a per-user one in /tmp. Created
/// when missing, accessible to this user only. Throws IoError.
std::string gpu_lock_folder();

}  // namespace moonshard::launch
