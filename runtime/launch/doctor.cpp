#include "runtime/launch/doctor.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/core/device.h"
#include "runtime/core/tuning.h"
#include "runtime/launch/machine.h"
#include "runtime/launch/process.h"
#include "runtime/profile/utilization.h"

namespace moonshard::launch {
namespace {

namespace fs = std::filesystem;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double free_gib(const char* path) {
  struct statvfs info {};
  if (::statvfs(path, &info) != 0) return -1;
  return static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / kGiB;
}

Finding compiler_and_program() {
  const Json machine = describe_machine();
  return {"moonshard", Health::Good,
          fmt::format("{} ({}, {}, commit {})", version(), machine["build_type"].get<std::string>(),
                      machine["compiler"].get<std::string>(), machine["commit"].get<std::string>()),
          ""};
}

Finding libtorch() {
  return {"LibTorch", Health::Good,
          fmt::format("{} on {}", libtorch_version(), describe_machine()["cpu"].get<std::string>()),
          ""};
}

Finding cuda() {
  const bool kernels = describe_machine()["cuda_kernels"].get<bool>();
  const std::string built = kernels ? "kernels built for CUDA" : "no libmoonshard_cuda.so";
  if (cuda_device_count() > 0) {
    return {
        "CUDA", kernels ? Health::Good : Health::Problem, built,
        kernels
            ? ""
            : "install nvcc, then build the target moonshard_gpu: without it kernels run as plain "
              "operations"};
  }
  return {"CUDA", Health::Note, fmt::format("{}; {}", built, cuda_absence_reason()),
          "experiments run on the CPU; for a GPU: check 'nvidia-smi', the driver, "
          "CUDA_VISIBLE_DEVICES"};
}

Finding gpus() {
  const std::vector<std::string> names = gpu_names();
  if (names.empty()) {
    return {
        "GPUs", Health::Note, "none visible",
        "if the machine has one: load the NVIDIA driver, and in a container pass the devices in"};
  }
  const bool usable = cuda_device_count() == static_cast<int>(names.size());
  return {
      "GPUs", usable ? Health::Good : Health::Problem,
      fmt::format("{} in the machine ({}), {} usable", names.size(), names[0], cuda_device_count()),
      usable ? "" : "CUDA_VISIBLE_DEVICES hides some, or the driver is older than LibTorch's CUDA"};
}

Finding nccl() {
  // The wheel keeps NCCL beside LibTorch; a loaded libtorch_cuda has it in the process already.
  Dl_info info{};
  fs::path library = "libnccl.so.2";
  if (dladdr(reinterpret_cast<const void*>(&c10::GetCPUAllocator), &info) != 0 &&
      info.dli_fname != nullptr) {
    const fs::path beside =
        fs::path(info.dli_fname).parent_path() / "../../nvidia/nccl/lib/libnccl.so.2";
    if (fs::exists(beside)) library = beside;
  }
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  auto* get_version = handle != nullptr
                          ? reinterpret_cast<int (*)(int*)>(dlsym(handle, "ncclGetVersion"))
                          : nullptr;
  int number = 0;
  if (get_version == nullptr || get_version(&number) != 0) {
    return {"NCCL", Health::Note, "not found",
            "only needed for several GPUs: it comes with the CUDA build of torch"};
  }
  const std::string text =
      fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  const bool recent = number >= 22000;
  return {"NCCL", recent ? Health::Good : Health::Problem, text,
          recent ? "" : "older than 2.20: install the torch version pinned in cmake/versions.ini"};
}

Finding graphics() {
  if (!fs::exists(sibling_program("moonshard-view"))) {
    return {"viewer", Health::Note, "moonshard-view is not built",
            "configure with -DMOONSHARD_VIEWER=ON (needs GLFW, EGL, GL); plots are still written "
            "as specs"};
  }
  void* egl = dlopen("libEGL.so.1", RTLD_LAZY | RTLD_LOCAL);
  const bool display =
      std::getenv("DISPLAY") != nullptr || std::getenv("WAYLAND_DISPLAY") != nullptr;
  if (egl == nullptr) {
    return {"viewer", Health::Problem, "no EGL on this machine (libEGL.so.1)",
            "Debian: apt install libegl1 libgl1-mesa-dri; without it plots are written as specs, "
            "not PNG"};
  }
  dlclose(egl);
  return {"viewer", Health::Good,
          display ? "EGL and a display" : "EGL, no display (PNG files work, a window does not)",
          ""};
}

Finding disk() {
  const double here = free_gib(".");
  const bool tight = here >= 0 && here < 1.0;
  return {"disk space", tight ? Health::Problem : Health::Good,
          fmt::format("{:.1f} GiB free in this folder", here),
          tight ? "results go to ./results: free space, or give another 'out' folder" : ""};
}

Finding shared_memory() {
  const double free = free_gib("/dev/shm");
  const bool tight = free < 0.25;
  return {"/dev/shm", tight ? Health::Problem : Health::Good,
          free < 0 ? "not there" : fmt::format("{:.1f} GiB free", free),
          tight ? "several GPUs on one machine exchange data through it: in a container give "
                  "--shm-size=2g or --ipc=host"
                : ""};
}

Finding memory() {
  const double total =
      static_cast<double>(describe_machine()["memory_bytes"].get<int64_t>()) / kGiB;
  const double free = static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) *
                      static_cast<double>(sysconf(_SC_PAGESIZE)) / kGiB;
  return {"memory", Health::Good, fmt::format("{:.1f} GiB, {:.1f} GiB unused now", total, free),
          "out of memory in a run: lower batch_size or seq_length, or take a smaller model"};
}

// Times that are measured beside other work are those of a busy machine.
Finding load() {
  const profile::MachineLoad now = profile::machine_load(c10::Device(c10::kCPU));
  std::string text = now.load_average
                         ? fmt::format("{:.1f} on average over the last minute, {:.0f} cores",
                                       *now.load_average, now.cores)
                         : fmt::format("not known, {:.0f} cores", now.cores);
  bool busy = now.load_average.value_or(0) > 0.5 * now.cores;
  for (const profile::Gpu& gpu : usable_gpus().gpus) {
    const double percent = gpu.utilization_percent.value_or(0);
    text +=
        fmt::format("; GPU {}: {:.0f} %, {} processes", gpu.index, percent, gpu.processes.size());
    busy = busy || percent > 10 || !gpu.processes.empty();
  }
  return {"load", busy ? Health::Note : Health::Good, text,
          busy ? "times measured now include waiting for other programs: end them, or wait" : ""};
}

Finding tuning() {
  const fs::path file = tuning_file();
  if (file.empty()) {
    return {"tuned choices", Health::Note, "not remembered between runs",
            "set MOONSHARD_TUNING to a file's path, or HOME"};
  }
  const auto choices = tuned_choices();
  if (choices.empty()) {
    return {"tuned choices", Health::Good, fmt::format("none yet; they go to {}", file.string()),
            ""};
  }
  std::string text = fmt::format("{} in {}", choices.size(), file.string());
  constexpr size_t kShown = 12;  // of a kind
  std::map<std::string, size_t> found;
  for (const auto& [key, choice] : choices) {
    const size_t name = key.rfind(" | ") == std::string::npos ? 0 : key.rfind(" | ") + 3;
    const std::string kind = key.substr(name, key.find_first_of(":0123456789", name) - name);
    if (++found[kind] > kShown) continue;
    text += fmt::format("\n    {}: {}", key, choice.choice);
    for (const auto& [candidate, ms] : choice.ms)
      text += fmt::format("  {} {:.3f} ms", candidate, ms);
  }
  for (const auto& [kind, count] : found)
    if (count > kShown) text += fmt::format("\n    … {} more: {}", count - kShown, kind);
  return {"tuned choices", Health::Good, text, ""};
}

// What plans take times from, beside the tuned choices.
Finding calibrations() {
  const fs::path beside = tuning_file();
  std::string text;
  std::error_code ignored;
  if (!beside.empty() && fs::is_directory(beside.parent_path(), ignored)) {
    for (const auto& entry : fs::directory_iterator(beside.parent_path(), ignored)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("machine_") || !name.ends_with(".json")) continue;
      text += fmt::format("{}{}", text.empty() ? "" : "\n    ", entry.path().string());
    }
  }
  if (!text.empty()) return {"calibration", Health::Good, text, ""};
  return {"calibration", Health::Good,
          "none: moonshard plan takes times of the profiles that ship; moonshard plan --calibrate "
          "measures this machine",
          ""};
}

}  // namespace

std::vector<Finding> examine_machine() {
  return {compiler_and_program(),
          libtorch(),
          cuda(),
          gpus(),
          nccl(),
          graphics(),
          disk(),
          memory(),
          load(),
          shared_memory(),
          tuning(),
          calibrations()};
}

Json to_json(const std::vector<Finding>& findings) {
  static constexpr const char* kHealth[] = {"good", "note", "problem"};
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"subject", finding.subject},
                    {"health", kHealth[static_cast<int>(finding.health)]},
                    {"found", finding.found},
                    {"advice", finding.advice}});
  }
  return Json{{"findings", std::move(list)}};
}

}  // namespace moonshard::launch
