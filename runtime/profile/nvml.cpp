#include "runtime/profile/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>

namespace moonshard::profile {
namespace {

// Our own declarations of the few calls that are needed: the header comes with the CUDA toolkit,
// which need not be installed where this runs.
using Device = void*;
constexpr int kSuccess = 0, kInsufficientSize = 7;
constexpr unsigned long long kNotAvailable = std::numeric_limits<unsigned long long>::max();

struct Memory {
  unsigned long long total, free, used;
};
struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct RunningProcess {  // layout of the calls that end in _v2 and _v3
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

class Library {
 public:
  Library() {
    handle_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      absence_ = "no NVIDIA driver here (libnvidia-ml.so.1 cannot be loaded)";
      return;
    }
    const bool complete = find(init_, "nvmlInit_v2") && find(count_, "nvmlDeviceGetCount_v2") &&
                          find(by_index_, "nvmlDeviceGetHandleByIndex_v2") &&
                          find(name_, "nvmlDeviceGetName") && find(uuid_, "nvmlDeviceGetUUID") &&
                          find(memory_, "nvmlDeviceGetMemoryInfo");
    find(error_text_, "nvmlErrorString");
    find(utilization_, "nvmlDeviceGetUtilizationRates");
    if (!find(processes_, "nvmlDeviceGetComputeRunningProcesses_v3"))
      find(processes_, "nvmlDeviceGetComputeRunningProcesses_v2");
    if (!complete) {
      absence_ = "the driver's libnvidia-ml.so.1 is too old (a call is missing)";
      return;
    }
    if (const int code = init_(); code != kSuccess)
      absence_ = "the NVIDIA driver does not answer: " + describe(code);
  }

  const std::string& absence() const { return absence_; }
  int count() const {
    unsigned count = 0;
    return absence_.empty() && count_(&count) == kSuccess ? static_cast<int>(count) : 0;
  }

  std::optional<Gpu> read(int index) const {
    Device device = nullptr;
    if (!open(index, device)) return std::nullopt;
    Gpu gpu;
    gpu.index = index;
    gpu.name = text_of(name_, device);
    gpu.uuid = text_of(uuid_, device);
    Memory memory{};
    if (memory_(device, &memory) == kSuccess) {
      gpu.memory_total_bytes = static_cast<int64_t>(memory.total);
      gpu.memory_used_bytes = static_cast<int64_t>(memory.used);
    }
    gpu.utilization_percent = utilization(device);
    gpu.processes = processes(device);
    return gpu;
  }

  std::optional<double> utilization(int index) const {
    Device device = nullptr;
    return open(index, device) ? utilization(device) : std::nullopt;
  }

 private:
  template <class F>
  bool find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(::dlsym(handle_, name));
    return function != nullptr;
  }

  bool open(int index, Device& device) const {
    return absence_.empty() && index >= 0 &&
           by_index_(static_cast<unsigned>(index), &device) == kSuccess;
  }

  std::string describe(int code) const {
    const char* text = error_text_ != nullptr ? error_text_(code) : nullptr;
    return text != nullptr ? text : "error " + std::to_string(code);
  }

  static std::string text_of(int (*read)(Device, char*, unsigned), Device device) {
    char text[128] = "";
    return read(device, text, sizeof text) == kSuccess ? text : "unknown";
  }

  std::optional<double> utilization(Device device) const {
    NvmlUtilization rates{};
    if (utilization_ == nullptr || utilization_(device, &rates) != kSuccess) return std::nullopt;
    return rates.gpu;
  }

  std::vector<GpuProcess> processes(Device device) const {
    std::vector<GpuProcess> found;
    if (processes_ == nullptr) return found;
    // A process may start between two calls: allow more entries than the last answer reported.
    for (unsigned room = 64; room <= 4096; room *= 2) {
      std::vector<RunningProcess> list(room);
      unsigned count = room;
      const int code = processes_(device, &count, list.data());
      if (code == kInsufficientSize) continue;
      if (code != kSuccess) return found;
      for (unsigned i = 0; i < std::min(count, room); ++i) {
        GpuProcess process;
        process.pid = list[i].pid;
        process.name = name_of(list[i].pid);
        if (list[i].used_bytes != kNotAvailable)
          process.bytes = static_cast<int64_t>(list[i].used_bytes);
        found.push_back(std::move(process));
      }
      return found;
    }
    return found;
  }

  static std::string name_of(unsigned pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    return std::getline(in, name) ? name : "unknown";
  }

  void* handle_ = nullptr;
  std::string absence_;
  int (*init_)() = nullptr;
  const char* (*error_text_)(int) = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*by_index_)(unsigned, Device*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  int (*utilization_)(Device, NvmlUtilization*) = nullptr;
  int (*processes_)(Device, unsigned*, RunningProcess*) = nullptr;
};

// Never unloaded: other threads may still call it at exit.
const Library& library() {
  static const Library* kept = new Library();
  return *kept;
}

std::string trimmed(std::string text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), is_space));
  text.erase(std::find_if_not(text.rbegin(), text.rend(), is_space).base(), text.end());
  return text;
}

const Gpu* find_gpu(const std::vector<Gpu>& gpus, const std::string& entry) {
  int index = -1;
  const char* end = entry.data() + entry.size();
  const auto [stop, error] = std::from_chars(entry.data(), end, index);
  const bool is_index = error == std::errc() && stop == end;
  for (const Gpu& gpu : gpus) {
    if (is_index ? gpu.index == index : !entry.empty() && gpu.uuid.starts_with(entry)) return &gpu;
  }
  return nullptr;
}

}  // namespace

GpuListing list_gpus() {
  GpuListing listing;
  const int count = library().count();
  for (int i = 0; i < count; ++i) {
    if (auto gpu = library().read(i)) listing.gpus.push_back(std::move(*gpu));
  }
  if (listing.gpus.empty()) {
    listing.absence = library().absence();
    if (listing.absence.empty()) listing.absence = "the NVIDIA driver shows no GPU";
  }
  return listing;
}

std::optional<double> gpu_utilization_percent(int index) {
  return library().utilization(index);
}

std::vector<Gpu> visible_gpus(const std::vector<Gpu>& gpus, const char* cuda_visible_devices) {
  if (cuda_visible_devices == nullptr) return gpus;
  std::vector<Gpu> visible;
  std::string rest = cuda_visible_devices;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string entry = trimmed(rest.substr(0, comma));
    const Gpu* gpu = find_gpu(gpus, entry);
    if (entry.starts_with("MIG-")) {
      // A MIG slice: usable, but not in the list, and with its own memory.
      Gpu slice;
      slice.uuid = entry;
      slice.name = "a slice of a GPU (MIG)";
      visible.push_back(slice);
    } else if (gpu == nullptr) {
      break;
    } else {
      visible.push_back(*gpu);
    }
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return visible;
}

}  // namespace moonshard::profile
