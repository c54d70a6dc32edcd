// The one file that needs LibTorch's CUDA library when it is linked: a separate shared library,
// loaded for jobs on GPUs. It only creates a c10d backend.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

extern "C" __attribute__((visibility("default"))) c10d::Backend* moonshard_make_nccl(
    c10d::Store* store, const char* name, int rank, int size, int device, double timeout_s) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  auto shared = c10::intrusive_ptr<c10d::Store>::reclaim_copy(store);
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10::make_intrusive<c10d::PrefixStore>(std::string("nccl/") + name, shared), rank, size,
      options);
  group->setBoundDeviceId(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return group.release();
}
