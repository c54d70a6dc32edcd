// What a parent that must not touch CUDA can know about GPUs: NVML's list, less what
// CUDA_VISIBLE_DEVICES hides, and nothing where this LibTorch has no CUDA half. Asking LibTorch
// itself would load that half and make a context, which holds memory while children are measured.
#pragma once

#include "runtime/profile/nvml.h"

namespace moonshard::launch {

/// The GPUs that a child process of ours could use, in CUDA's order.
profile::GpuListing usable_gpus();

/// Folder of the locks "one run per GPU": MOONSHARD_LOCK_DIR, or one of this user's in /tmp. Made
/// when missing, for this user alone. Throws IoError.
std::string gpu_lock_folder();

}  // namespace moonshard::launch
