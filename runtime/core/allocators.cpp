#include "runtime/core/allocators.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>
#include <thread>

#include <c10/core/AllocatorConfig.h>
#include <dlfcn.h>

namespace moonshard {
namespace {

// The driver holds up every launch while it takes page-locked memory (20 s for the saves of an 8B
// model, measured). Taken by threads and locked afterwards it took 6 s, and no step waited.
__attribute__((constructor)) void lock_pages_beside_steps() {
  if (std::getenv("PYTORCH_ALLOC_CONF") != nullptr) return;
  const unsigned threads = std::bit_floor(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  const std::string settings = "pinned_use_cuda_host_register:True,pinned_num_register_threads:";
  setenv("PYTORCH_CUDA_ALLOC_CONF", (settings + std::to_string(threads)).c_str(), 0);
}

// Some virtual GPUs cannot, and LibTorch finds out at its first allocation, by an error.
bool driver_maps_memory() {
  constexpr int kMapsMemory = 102;  // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return false;
  const auto initialise = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count_of = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto device_of = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto attribute_of =
      reinterpret_cast<int (*)(int*, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
  if (initialise == nullptr || count_of == nullptr || device_of == nullptr ||
      attribute_of == nullptr)
    return false;
  int count = 0;
  if (initialise(0) != 0 || count_of(&count) != 0) return false;
  for (int i = 0; i < count; ++i) {
    int device = 0, maps = 0;
    if (device_of(&device, i) != 0 || attribute_of(&maps, kMapsMemory, device) != 0 || maps == 0)
      return false;
  }
  return count > 0;
}

}  // namespace

void let_segments_grow() {
  std::string settings = c10::CachingAllocator::getAllocatorSettings();
  if (settings.find("expandable_segments") == std::string::npos && driver_maps_memory()) {
    while (settings.ends_with(',') || settings.ends_with(' ')) settings.pop_back();
    c10::CachingAllocator::setAllocatorSettings(settings + (settings.empty() ? "" : ",") +
                                                "expandable_segments:True");
  }
  if (segments_grow()) setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

bool segments_grow() {
  return c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
}

}  // namespace moonshard
