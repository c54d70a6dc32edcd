#include "kernels/common/choice.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "kernels/common/cuda_library.h"

namespace moonshard::kernels {
namespace {

std::atomic<bool> reference_only{false};

bool asked_for(const char* what) {
  static const std::string wish = [] {
    const char* set = std::getenv("MOONSHARD_KERNELS");
    return std::string(set != nullptr ? set : "");
  }();
  return wish == what;
}

int architecture_from_library(int device) {
  return cuda_library_absence().empty() ? cuda().device_architecture(device) : 0;
}

int architecture_of(const at::Tensor& tensor) {
  constexpr int kMostDevices = 64;
  static std::atomic<int> known[kMostDevices];
  const int device = tensor.get_device();
  if (device < 0 || device >= kMostDevices) return architecture_from_library(device);
  int architecture = known[device].load(std::memory_order_relaxed);
  if (architecture == 0) {
    architecture = architecture_from_library(device);
    known[device].store(architecture, std::memory_order_relaxed);
  }
  return architecture;
}

}  // namespace

bool kernel_runs(const char* operation, const at::Tensor& tensor, Needs needs) {
  if (!tensor.is_cuda() || reference_only.load(std::memory_order_relaxed)) return false;
  if (asked_for("reference")) {
    note_fallback(operation, "MOONSHARD_KERNELS=reference");
    return false;
  }
  const int architecture = architecture_of(tensor);
  if (architecture == 0) {
    note_fallback(operation, cuda_library_absence());
    return false;
  }
  if (architecture < 80 || (needs == Needs::Hopper && architecture != 90)) {
    note_fallback(operation, "a GPU of compute capability " + std::to_string(architecture / 10) +
                                 "." + std::to_string(architecture % 10));
    return false;
  }
  if (needs == Needs::Hopper && asked_for("portable")) {
    note_fallback(operation, "MOONSHARD_KERNELS=portable");
    return false;
  }
  return true;
}

Variant variant_of(const char* operation, const at::Tensor& tensor) {
  if (!kernel_runs(operation, tensor)) return Variant::None;
  const bool hopper = architecture_of(tensor) == 90 && !asked_for("portable");
  return hopper ? Variant::Hopper : Variant::Portable;
}

void note_fallback(const char* operation, const std::string& reason) {
  static std::mutex mutex;
  static std::set<std::string> noted;
  const std::lock_guard lock(mutex);
  if (noted.insert(operation + (": " + reason)).second)
    std::fprintf(stderr, "moonshard: %s runs as plain operations: %s\n", operation, reason.c_str());
}

LaunchStream::LaunchStream(const at::Tensor& tensor) : device_(tensor.device()) {
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  stream_ = guard.getStream(tensor.device()).native_handle();
}

int64_t memory_around(const at::Tensor& tensor) {
  if (!tensor.is_cuda() || !cuda_library_absence().empty()) return 0;
  return cuda().device_memory_bytes(tensor.get_device());
}

ReferenceOnly::ReferenceOnly() : before_(reference_only.exchange(true)) {}

ReferenceOnly::~ReferenceOnly() {
  reference_only.store(before_);
}

}  // namespace moonshard::kernels
