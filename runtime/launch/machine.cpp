#include "runtime/launch/machine.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <dlfcn.h>
#include <link.h>
#include <sys/utsname.h>
#include <torch/csrc/api/include/torch/version.h>
#include <unistd.h>

#include "moonshard_build.h"
#include "runtime/base/plugin.h"
#include "runtime/core/version.h"

namespace moonshard::launch {
namespace {

// Value of the first "key … : value" line of a file in /proc; "" when there is none.
std::string proc_field(const std::filesystem::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.rfind(key, 0) != 0) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::string operating_system() {
  std::ifstream in("/etc/os-release");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("PRETTY_NAME=\"", 0) == 0) return line.substr(13, line.size() - 14);
  }
  return "unknown";
}

// Whether libtorch_cuda.so lies beside the libtorch_cpu.so that this process has loaded.
bool libtorch_has_cuda() {
  void* cpu_half = ::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (cpu_half == nullptr) return false;
  link_map* map = nullptr;
  const bool known = ::dlinfo(cpu_half, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
  const std::filesystem::path file = known ? map->l_name : "";
  ::dlclose(cpu_half);
  std::error_code ignored;
  return known && std::filesystem::exists(file.parent_path() / "libtorch_cuda.so", ignored);
}

}  // namespace

std::string version() {
  return MOONSHARD_VERSION;
}

std::string libtorch_version() {
  return TORCH_VERSION;
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    names.push_back(proc_field(entry.path() / "information", "Model"));
  }
  return names;
}

Json describe_machine() {
  utsname system{};
  ::uname(&system);
  std::string cpu = proc_field("/proc/cpuinfo", "model name");
  if (cpu.empty()) cpu = system.machine;
  return Json{
      {"schema_version", kSchemaVersion},
      {"moonshard", MOONSHARD_VERSION},
      {"commit", source_commit()},
      {"build_type", MOONSHARD_BUILD_TYPE},
      {"compiler", MOONSHARD_COMPILER},
      {"cuda_kernels", std::filesystem::exists(plugin_path("moonshard_cuda"))},
      {"libtorch", TORCH_VERSION},
      {"os", operating_system()},
      {"kernel", system.release},
      {"machine", system.machine},
      {"cpu", cpu},
      {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
      {"memory_bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)},
      {"gpus", gpu_names()}};
}

profile::GpuListing usable_gpus() {
  profile::GpuListing listing = profile::list_gpus();
  if (listing.gpus.empty()) return listing;
  if (!libtorch_has_cuda()) return {{}, "this LibTorch has no CUDA (no libtorch_cuda.so)"};
  listing.gpus = profile::visible_gpus(listing.gpus, std::getenv("CUDA_VISIBLE_DEVICES"));
  if (listing.gpus.empty()) listing.absence = "CUDA_VISIBLE_DEVICES hides all GPUs";
  return listing;
}

}  // namespace moonshard::launch
