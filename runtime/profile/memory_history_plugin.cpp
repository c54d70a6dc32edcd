// LibTorch's memory history, which lives in its CUDA library: a separate shared library, loaded
// when a snapshot is requested.
#include <torch/csrc/cuda/memory_snapshot.h>

extern "C" {

__attribute__((visibility("default"))) void moonshard_record_memory(bool on, size_t entries) {
  if (on) {
    torch::cuda::_record_memory_history(std::string("all"), std::string("all"), "all", entries,
                                        /*clearHistory=*/true);
  } else {
    torch::cuda::_record_memory_history(std::nullopt);
  }
}

__attribute__((visibility("default"))) void moonshard_memory_snapshot(
    void* to, void (*take)(void* to, const char* bytes, size_t count)) {
  const std::string bytes = torch::cuda::_memory_snapshot_pickled();
  take(to, bytes.data(), bytes.size());
}
}
