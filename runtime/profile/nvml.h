// GPUs as the driver's management library (NVML) sees them: names, memory, utilisation, and memory
// per process. It is loaded when first used, needs no CUDA and makes no context, so that a process
// that watches GPUs takes none of their memory. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moonshard::profile {

struct GpuProcess {
  int64_t pid = 0;               ///< the driver's; may belong to another container
  std::string name;              ///< "unknown" for one of another container
  std::optional<int64_t> bytes;  ///< empty where the driver does not report it
};

struct Gpu {
  int index = 0;     ///< NVML's, in the order of the PCI bus
  std::string uuid;  ///< "GPU-…": what CUDA_VISIBLE_DEVICES takes without ambiguity
  std::string name;
  int64_t memory_total_bytes = 0;
  int64_t memory_used_bytes = 0;
  std::optional<double> utilization_percent;  ///< over the driver's last sample period
  std::vector<GpuProcess> processes;
};

struct GpuListing {
  std::vector<Gpu> gpus;
  std::string absence;  ///< why the list is empty; "" when it is not
};

/// All GPUs of this machine. Cheap enough for ten times a second.
GpuListing list_gpus();

/// Utilisation alone, for samplers; empty where the driver does not report it.
std::optional<double> gpu_utilization_percent(int index);

/// Those that a value of CUDA_VISIBLE_DEVICES leaves, in its order: indices or prefixes of UUIDs;
/// entries after an invalid one are ignored, as in CUDA. A MIG slice (MIG-…) is listed without
/// figures. A null pointer leaves all.
std::vector<Gpu> visible_gpus(const std::vector<Gpu>& gpus, const char* cuda_visible_devices);

}  // namespace moonshard::profile
