// Which implementation of an operation runs: its CUDA kernel, or its reference of ATen operations.
// Both give the same result within the operation's stated tolerance. A fallback on a GPU is logged
// once per operation and reason.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

namespace moonshard::kernels {

enum class Needs {
  AnyGpu,  ///< code for the architectures of the build, newer ones through PTX
  Hopper   ///< compute capability 9.0: wgmma and the bulk tensor copy engine
};

/// True when the operation's kernel can run on the device of `tensor`. False on the CPU, silently.
/// False on a GPU, with one logged line, where the CUDA library cannot be loaded, on another
/// architecture, and with MOONSHARD_KERNELS=reference in the environment.
/// MOONSHARD_KERNELS=portable disables the Hopper kernels.
bool kernel_runs(const char* operation, const at::Tensor& tensor, Needs needs = Needs::AnyGpu);

/// For operations that have a kernel for Hopper and another for any GPU.
enum class Variant { None, Portable, Hopper };

/// Which of the two runs where `tensor` lies; None where kernel_runs() is false.
Variant variant_of(const char* operation, const at::Tensor& tensor);

/// The same for a reason specific to the operation ("a width of 100, which is no multiple of 8").
/// Logged once per operation and reason.
void note_fallback(const char* operation, const std::string& reason);

/// The current stream of the tensor's device, as launchers take it. While the object lives (as an
/// argument: until the launcher returns) that device is also the current one: a rank's tensors may
/// lie on any GPU, and kernels start on the current one.
class LaunchStream {
 public:
  explicit LaunchStream(const at::Tensor& tensor);
  operator void*() const { return stream_; }

 private:
  c10::OptionalDeviceGuard device_;
  void* stream_;
};
inline LaunchStream stream_of(const at::Tensor& tensor) {
  return LaunchStream(tensor);
}

/// Bytes of memory of the GPU where the tensor lies; 0 on the CPU and without the CUDA library.
int64_t memory_around(const at::Tensor& tensor);

/// For comparing both implementations in one process: while it lives, references run everywhere.
class ReferenceOnly {
 public:
  ReferenceOnly();
  ~ReferenceOnly();
  ReferenceOnly(const ReferenceOnly&) = delete;
  ReferenceOnly& operator=(const ReferenceOnly&) = delete;

 private:
  bool before_;
};

}  // namespace moonshard::kernels
