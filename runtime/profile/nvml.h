// GPUs as the driver's management library (NVML) sees them: names, memory, utilisation, and who
// holds what. It is loaded when first asked for, needs no CUDA and makes no context, so that a
// process that watches GPUs takes none of their memory. Knows no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moonshard::profile {

struct GpuProcess {
  int64_t pid = 0;               ///< as the driver counts; another container's is no process here
  std::string name;              ///< "unknown" for one of another container
  std::optional<int64_t> bytes;  ///< none where the driver does not say
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

/// Utilisation alone, for samplers; nothing where the driver does not say.
std::optional<double> gpu_utilization_percent(int index);

/// Those that a value of CUDA_VISIBLE_DEVICES leaves, in its order: indices or the beginnings of
/// UUIDs; what comes after an entry that names none does not count, as in CUDA. A slice (MIG-…)
/// stands as itself, without figures. A null pointer leaves all.
std::vector<Gpu> visible_gpus(const std::vector<Gpu>& gpus, const char* cuda_visible_devices);

}  // namespace moonshard::profile
