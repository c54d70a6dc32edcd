// CUDA graphs with memory of LibTorch's allocator: a shared library of its own, loaded when a
// trainer is asked to compile its steps.
//
// Not at::cuda::CUDAGraph: when a capture fails, that one leaves the allocator in the middle of it;
// and it makes LibTorch's generators part of the graph, where here they are to refuse.
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/train/cuda_graph.h"

namespace moonshard::train {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// One for all captures of a device: cuBLAS keeps a workspace for every stream that it has seen.
c10::cuda::CUDAStream capture_stream(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::lock_guard lock(mutex);
  const auto known = streams.find(device);
  if (known != streams.end()) return known->second;
  return streams.emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device))
      .first->second;
}

// The error is the caller's to tell; the next call is to begin without it.
std::string text_of(cudaError_t error) {
  cudaGetLastError();
  return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
}

class AllocatorGraph : public CudaGraph {
 public:
  explicit AllocatorGraph(c10::DeviceIndex device) : device_(device) {}

  ~AllocatorGraph() override {
    if (on_stream_) end();
    if (executable_ != nullptr) C10_CUDA_IGNORE_ERROR(cudaGraphExecDestroy(executable_));
    if (!has_pool_) return;
    try {
      allocator::releasePool(device_, pool_);
    } catch (...) {  // its memory stays taken, which is no reason to end the program
    }
  }

  void begin() override {
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    // Workspaces of cuBLAS (64 MiB a stream) that eager steps have used: replays have their own.
    at::cuda::clearCublasWorkspaces();
    allocator::emptyCache();
    pool_ = at::cuda::graph_pool_handle();
    on_stream_.emplace(capture_stream(device_));
    const cudaStream_t stream = on_stream_->current_stream().stream();
    // Before the capture begins: an allocation during a capture needs its pool.
    allocator::beginAllocateToPool(device_, pool_, [this](cudaStream_t asked) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      unsigned long long id = 0;
      if (cudaStreamGetCaptureInfo(asked, &status, &id) != cudaSuccess) return false;
      return status == cudaStreamCaptureStatusActive && id == id_.load();
    });
    has_pool_ = true;
    // Other threads (another trainer's, a loader's) go on as if nothing was captured.
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      unsigned long long id = 0;
      error = cudaStreamGetCaptureInfo(stream, &status, &id);
      id_.store(id);
      if (error == cudaSuccess) return;
    }
    const std::string why = text_of(error);
    end();
    TORCH_CHECK(false, why);
  }

  std::string end() override {
    const cudaStream_t stream = on_stream_->current_stream().stream();
    cudaGraph_t graph = nullptr;
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    allocator::endAllocateToPool(device_, pool_);
    on_stream_.reset();
    size_t nodes = 0;
    if (error == cudaSuccess) error = cudaGraphGetNodes(graph, nullptr, &nodes);
    if (error == cudaSuccess && nodes > 0)
      error = cudaGraphInstantiateWithFlags(&executable_, graph,
                                            cudaGraphInstantiateFlagUseNodePriority);
    if (graph != nullptr) C10_CUDA_IGNORE_ERROR(cudaGraphDestroy(graph));
    if (error != cudaSuccess) return text_of(error);
    return nodes > 0 ? "" : "nothing was captured";
  }

  void launch() override {
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(cudaGraphLaunch(executable_, c10::cuda::getCurrentCUDAStream(device_)));
  }

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t pool_{0, 0};
  bool has_pool_ = false;
  std::atomic<unsigned long long> id_{0};  ///< of the capture
  std::optional<c10::cuda::CUDAStreamGuard> on_stream_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace
}  // namespace moonshard::train

extern "C" {

__attribute__((visibility("default"))) moonshard::train::CudaGraph* moonshard_make_cuda_graph(
    int device) {
  return new moonshard::train::AllocatorGraph(static_cast<c10::DeviceIndex>(device));
}

__attribute__((visibility("default"))) bool moonshard_memory_is_recorded() {
  return c10::cuda::CUDACachingAllocator::isHistoryEnabled();
}
}
